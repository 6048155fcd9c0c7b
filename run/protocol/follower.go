package protocol

import "context"

// Follower reads the events of a thread for one connection, from the first record that is kept, as long as the thread exists. Not safe for concurrent use.
type Follower interface {
	// Next returns the next selected events. The first one is a Gap if the first filter is to resume and events after its Since are not kept. Once it returns none without an error: all that was kept when it began has been returned. The errors are those of
	// run.Follower; io.EOF: the thread was deleted. After an error of ctx it may be called again.
	Next(ctx context.Context) ([]Event, error)
	// Select replaces the filters for the events that follow.
	Select(filters ...Filter)
	// Last returns the seq of the last event, selected or not; 0 before the first.
	Last() int64
	// Tree returns the graphs of the run that began last, as AgentTree of the protocol; nil: no run has begun.
	Tree() []byte
	// Asked returns the namespace in which the run that began last requested an interrupt.
	Asked(interrupt string) (namespace []string, ok bool)
	Close()
}
