package checkpointer

import "testing"

// FuzzShape: what a worker says of a graph is read, or refused.
func FuzzShape(f *testing.F) {
	f.Add([]byte(`{"out":["messages"],"channels":{"messages":{"kind":"BinaryOperatorAggregate","empty":{"type":"msgpack","data":"kA=="}}},"stateful":["n"]}`))
	f.Add([]byte(`{"out":"x","channels":{"x":{"kind":"DeltaChannel","empty":null}}}`))
	f.Add([]byte(`{"out":null}`))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		if sh, err := parseShape(raw); err == nil {
			sh.shows("messages")
		}
	})
}
