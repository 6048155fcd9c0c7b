// Package eventstore is the append-only log of what happened on threads, and the transcripts folded from it: the messages as a person
// saw them, which summarization never shortens. It knows no HTTP and runs no graph.
//
// Record is called in the transaction that saves a root checkpoint. It compares the messages of the checkpoint with what is
// known of its parent (order is by parent, never by time), appends what is new to the log, and notes for the checkpoint:
//
//   - its transcript: message events and markers, in the order in which a person sees them;
//   - its list: which event each message of the checkpoint stands for, summaries included.
//
// A message in the transcript that is not in the list was condensed: the model no longer sees it, a person does. What left the list is
// judged once, when it leaves (package judge): a client or a reset removes, a summarizer condenses.
//
// Both are lists of seqs, which in a long thread are a few ranges. They are stored as nodes (node.go): most hold only the
// difference to another node, and a checkpoint that changed nothing points at its parent's. So a step costs storage for what it
// adds, however long the thread is. A Cache keeps the state of the threads that were written last, so that a step need
// not read back what the one before it knew.
package eventstore
