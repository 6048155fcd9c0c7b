package eventstore

import (
	"github.com/tidwall/gjson"

	"understudy/eventstore/judge"
	"understudy/internal/jsonplus"
)

// byClient returns a function that reports whether a client removed a message in this step; nil if no client could. The client's
// input is read only when needed.
func (s *step) byClient() (func(mid string) bool, error) {
	if !s.Loses() {
		return nil, nil
	}
	if s.f.Source == "update" || s.f.Source == "fork" {
		if s.declares() {
			return nil, nil // a conversation that is condensed on request: the summary stands for what went
		}
		return func(string) bool { return true }, nil
	}
	// Writes that a command left on the parent, and that are not of this run's first step, belong to another run that began
	// there.
	if s.parent != nil && !judge.Calls(string(s.f.Run), string(s.parent.Run), s.parent.Source) {
		return nil, nil
	}
	names := map[string]bool{}
	if s.f.Parent != "" {
		writes, err := s.tx.ClientWrites(s.f.Thread, s.f.Parent, s.f.channel())
		if err != nil {
			return nil, err
		}
		for _, w := range writes {
			// A value that cannot be read names no messages.
			if text, err := jsonplus.AppendJSON(nil, w.Type, w.Data); err == nil {
				named(names, gjson.ParseBytes(text), 0)
			}
		}
	}
	if s.f.Run != "" {
		input, command, err := s.tx.RunInput(s.f.Run)
		if err != nil {
			return nil, err
		}
		named(names, gjson.ParseBytes(input), 0)
		named(names, gjson.GetBytes(command, "update"), 0)
	}
	return func(mid string) bool { return names[removeAll] || names[mid] }, nil
}

// declares reports whether the step brings a summary that declares itself.
func (s *step) declares() bool {
	for i := range s.Next {
		if n := &s.Next[i]; n.Was == nil && n.Declared {
			return true
		}
	}
	return false
}
