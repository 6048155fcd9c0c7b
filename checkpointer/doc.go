// Package checkpointer owns checkpoints: rows as langgraph-checkpoint-postgres lays them out, and snapshots, which are
// checkpoints as the API shows them. It knows no transcript and runs no graph.
//
// A snapshot is composed when it is read, from three things: the channel values and writes stored with the checkpoint; its
// description, which the graph gave once, when the checkpoint was saved (the next tasks, and the shape of the graph); and,
// where neither says enough, an answer of the graph, which is asked for once and kept:
//
//   - a Command changed state: its writes go through reducers;
//   - the head is read while some of its tasks have finished: so do theirs;
//   - a delta channel is folded from its ancestors;
//   - nobody described the checkpoint, as in databases that LangGraph wrote.
//
// No graph can be asked: values, metadata and times still come from rows, and next and tasks are as far as they are described.
//
// There are two views. A record is what history lists and what a checkpoint id gives: the step as it began, with what its
// tasks went on to write as their results. Live is the head of a namespace read without an id: output of tasks that have
// finished is in the values, and these tasks are no longer next. A record's nested states are live too, as LangGraph shows them.
//
// The JSON of values is made once per element of a list, whatever the number of checkpoints that hold it.
package checkpointer
