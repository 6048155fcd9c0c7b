package checkpointer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
)

// shape is a parsed Shape.
type shape struct {
	bare     bool // values are those of out[0] alone, not an object
	out      []string
	channels map[string]channel
	stateful []string
	delta    []string // channels of out whose values are folded from ancestors
}

type channel struct {
	kind  string
	key   []byte          // the name as the key of an object
	empty json.RawMessage // value when nothing is stored; nil: omitted
}

// Kinds of channels whose shown value differs from the stored one.
const (
	kindAfterFinish = "LastValueAfterFinish"
	kindUntracked   = "UntrackedValue"
	kindTopic       = "Topic"
	kindDelta       = "DeltaChannel"
	kindBarrier     = "NamedBarrierValue" // and NamedBarrierValueAfterFinish
)

func parseShape(raw Shape) (*shape, error) {
	var in struct {
		Out      json.RawMessage `json:"out"`
		Channels map[string]struct {
			Kind  string `json:"kind"`
			Empty *struct {
				Type string `json:"type"`
				Data []byte `json:"data"`
			} `json:"empty"`
		} `json:"channels"`
		Stateful []string `json:"stateful"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read shape: %w", err)
	}
	sh := &shape{channels: make(map[string]channel, len(in.Channels)), stateful: in.Stateful}
	if len(in.Out) > 0 && in.Out[0] == '"' {
		sh.bare, sh.out = true, make([]string, 1)
		if err := json.Unmarshal(in.Out, &sh.out[0]); err != nil {
			return nil, fmt.Errorf("read shape: %w", err)
		}
	} else if err := json.Unmarshal(in.Out, &sh.out); err != nil {
		return nil, fmt.Errorf("read shape: %w", err)
	}
	for name, c := range in.Channels {
		ch := channel{kind: c.Kind, key: jsonobj.Quote(name)}
		if c.Empty != nil && c.Kind != kindUntracked {
			// An empty value that cannot be converted is not shown.
			if text, err := jsonplus.AppendJSON(nil, c.Empty.Type, c.Empty.Data); err == nil {
				ch.empty = text
			}
		}
		sh.channels[name] = ch
	}
	for _, name := range sh.out {
		if sh.channels[name].kind == kindDelta {
			sh.delta = append(sh.delta, name)
		}
	}
	return sh, nil
}

// shows reports whether a channel is part of values and results.
func (sh *shape) shows(name string) bool {
	if sh == nil {
		return !internalChannel(name)
	}
	return slices.Contains(sh.out, name)
}

// internalChannel recognizes LangGraph's own channels by their names, when no graph is available.
func internalChannel(name string) bool {
	return strings.HasPrefix(name, "__") || strings.Contains(name, ":")
}

// shape returns the shape with a digest; nil when its definition is unknown.
func (s *Snapshots) shape(ctx context.Context, digest string) (*shape, error) {
	if digest == "" {
		return nil, nil
	}
	if known, ok := s.shapes.Load(digest); ok {
		return known.(*shape), nil
	}
	raw, err := s.rows.LoadShape(ctx, digest)
	if err != nil || raw == nil {
		return nil, err
	}
	sh, err := parseShape(raw)
	if err != nil {
		return nil, err
	}
	// There are as many shapes as versions of graphs, so the map needs no limit.
	s.shapes.Store(digest, sh)
	return sh, nil
}
