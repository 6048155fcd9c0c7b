// Package overlay shows conversations as people saw them: it puts the transcript of a checkpoint in place of the messages that the
// checkpoint holds, and takes back out of what clients send what only the overlay had put in.
//
// A transcript differs from the messages of its checkpoint once a summarizer has condensed some. Where it does not, values pass as they
// are. Where it does, messages are joined as bytes that were encoded once, when they were recorded; nothing is decoded to show it.
//
// Values may be ahead of their checkpoint: the head of a thread shows the output of tasks that have finished, and runs with
// durability "exit" stream states that are never saved. These are folded (fold.go): the transcript of the checkpoint, and what
// is new in the values by message id. What left them is judged as recording will judge it.
//
// Graphs, and so models, never see a transcript.
package overlay
