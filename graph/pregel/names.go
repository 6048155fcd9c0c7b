package pregel

// Names of channels, tasks and kinds of writes that LangGraph reserves.
const (
	chanTasks    = "__pregel_tasks"
	chanPrevious = "__previous__"

	writeInput     = "__input__"
	writeInterrupt = "__interrupt__"
	writeResume    = "__resume__"
	writeError     = "__error__"
	writeErrorNode = "__error_source_node__"
	writeNone      = "__no_writes__"
	writeReturn    = "__return__"

	push = "__pregel_push"
	pull = "__pregel_pull"

	nullTask = "00000000-0000-0000-0000-000000000000"

	sourceInput  = "input"
	sourceLoop   = "loop"
	sourceUpdate = "update"
	sourceFork   = "fork"

	branchTo = "branch:to:"
)

var reserved = map[string]bool{
	chanTasks: true, chanPrevious: true, writeInput: true, writeInterrupt: true, writeResume: true, writeError: true, writeErrorNode: true,
	writeNone: true, writeReturn: true, push: true, pull: true, START: true, END: true, "__root__": true, "__snapshot_bumps__": true,
	"langsmith:hidden": true, "checkpoint_ns": true, "checkpoint_id": true, "checkpoint_map": true, "configurable": true,
	"__pregel_send": true, "__pregel_read": true, "__pregel_checkpointer": true, "__pregel_stream": true, "__pregel_resuming": true,
	"__pregel_task_id": true, "__copy__": true,
}

// specialIndex is the fixed index of control writes, as WRITES_IDX_MAP of LangGraph.
func specialIndex(channel string) (int, bool) {
	switch channel {
	case writeError:
		return -1, true
	case "__scheduled__":
		return -2, true
	case writeInterrupt:
		return -3, true
	case writeResume:
		return -4, true
	}
	return 0, false
}

// controlWrite reports whether writes to the channel record the outcome of a task rather than its results.
func controlWrite(channel string) bool {
	switch channel {
	case writeError, writeErrorNode, writeInterrupt, writeResume:
		return true
	}
	return false
}
