// Package overlay shows conversations as people saw them: it replaces the messages of a checkpoint by its transcript, and removes from
// clients' input the messages that only the overlay had added.
//
// A transcript differs from the messages of its checkpoint once a summarizer has condensed some. If it does not, values pass unchanged.
// If it does, messages are joined as bytes that were encoded once, when they were recorded; nothing is decoded to show it.
//
// Values may be ahead of their checkpoint: the head of a thread shows the output of tasks that have finished, and runs with durability
// "exit" stream states that are never saved. These are folded (fold.go): the transcript of the checkpoint, and new messages of the
// values by id. Messages that left are judged as recording will judge them.
//
// Graphs, and so models, never see a transcript.
package overlay
