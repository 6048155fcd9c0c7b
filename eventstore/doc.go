// Package eventstore is the append-only log of what happened on threads, and the transcripts folded from it: the messages as a person
// saw them, which summarization never shortens. It does not use HTTP and does not run graphs.
//
// Record is called in the transaction that saves a root checkpoint. It compares the messages of the checkpoint with those recorded for
// its parent (order is by parent, never by time), appends the changes to the log, and stores for the checkpoint:
//
//   - its transcript: message events and markers, in the order in which a person sees them;
//   - its list: which event each message of the checkpoint stands for, summaries included.
//
// A message in the transcript that is not in the list was condensed: the model no longer sees it, a person does. A message that leaves
// the list is judged once, at that step (package judge): a client or a reset removes it, a summarizer condenses it.
//
// Both are lists of seqs, which in a long thread are a few ranges. They are stored as nodes (node.go): most hold only the difference
// to another node, and a checkpoint that changed nothing points at its parent's. So the storage of a step depends on what it adds, not
// on the length of the thread. A Cache holds the states of the threads written last, so that a step need not read the state of the
// previous one.
package eventstore
