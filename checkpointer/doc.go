// Package checkpointer owns checkpoints: rows in the layout of langgraph-checkpoint-postgres, and snapshots, which are
// checkpoints as the API shows them. It does not use transcripts and does not run graphs.
//
// A snapshot is composed when it is read, from three things: the channel values and writes stored with the checkpoint; its
// description, which the graph returned when the checkpoint was saved (the next tasks, and the shape of the graph); and, where
// these are not enough, an answer of the graph, which is requested once and cached:
//
//   - a Command changed state: its writes go through reducers;
//   - the head is read while some of its tasks have finished: so do theirs;
//   - a delta channel is folded from its ancestors;
//   - the checkpoint has no description, as in databases that LangGraph wrote.
//
// When no graph is available, values, metadata and times still come from rows, and next and tasks from the description, if any.
//
// There are two views. A record is what history lists and what a read by checkpoint id returns: the step as it began, with the
// later writes of its tasks as their results. Live is the head of a namespace read without an id: output of tasks that have
// finished is in the values, and these tasks are no longer next. A record's nested states are live too, as LangGraph shows them.
//
// The JSON of values is encoded once per element of a list, whatever the number of checkpoints that hold it.
package checkpointer
