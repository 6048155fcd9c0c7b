package eventstore

import (
	"github.com/tidwall/gjson"

	"understudy/eventstore/judge"
	"understudy/internal/jsonplus"
)

// byClient returns what reports whether a client removed a message with this step; nil: none. What clients sent is read only when it
// matters.
func (s *step) byClient() (func(mid string) bool, error) {
	if !s.Loses() {
		return nil, nil
	}
	if s.f.Source == "update" || s.f.Source == "fork" {
		return func(string) bool { return true }, nil
	}
	// Writes that a command left on the parent, and are not of this run's first step, are those of another run that began there.
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
			// What cannot be read names nothing.
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
