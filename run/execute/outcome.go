package execute

import (
	"understudy/graph"
	"understudy/thread/partial"
)

// outcome is how an execution ended.
type outcome struct {
	kind     outcomeKind
	failure  *graph.Failure  // of failed
	logged   bool            // the failure is in the log already
	death    *graph.Death    // of died; nil: nothing is known
	streamed *partial.Tokens // what the execution streamed of answers; nil: not kept, or not known
}

type outcomeKind int

const (
	succeeded outcomeKind = iota // also when the graph waits at an interrupt
	failed                       // the graph raised
	cancelled                    // by a client; how is on the row
	timedOut
	died       // the worker died under it
	handedBack // not its fault: shutdown, reload
	dropped    // the run is not ours any more: nothing to write
)

// outcomeWords are how an outcome is called in the log, in metrics, and in the spans of the run.
type outcomeWords struct {
	log, label string
	span       graph.SpanStatus
}

var outcomes = [...]outcomeWords{
	succeeded:  {"success", "success", graph.SpanSuccess},
	failed:     {"error", "error", graph.SpanError},
	cancelled:  {"cancelled", "cancelled", graph.SpanCancelled},
	timedOut:   {"timeout", "timeout", graph.SpanError},
	died:       {"worker died", "worker_died", graph.SpanLost},
	handedBack: {"handed back", "handed_back", graph.SpanLost},
	dropped:    {"dropped", "lost", graph.SpanLost},
}

func (k outcomeKind) words() outcomeWords { return outcomes[k] }
