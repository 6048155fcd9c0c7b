package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/internal/jsonobj"
)

// extractParts is extract for a thread whose values were not read: it reads only what the paths lead to. done is false when all values are needed.
func (s *Service) extractParts(ctx context.Context, paths map[string]string, v *View) (done bool, err error) {
	p := partial{Service: s, v: v}
	for _, path := range paths {
		root, rest := rootOf(path)
		if root != "values" {
			continue
		}
		pick, _, ok := pickOf(rest)
		if !ok {
			return false, nil
		}
		p.add(pick)
	}
	ok, err := p.read(ctx)
	if err != nil {
		return false, s.unlessGone(ctx, v.ID, err)
	}
	if !ok {
		return false, nil
	}
	out := &jsonobj.Object{}
	for _, alias := range slices.Sorted(maps.Keys(paths)) {
		root, rest := rootOf(paths[alias])
		if root != "values" {
			out.Set(alias, at(v.root(root), rest))
			continue
		}
		pick, rest, _ := pickOf(rest)
		out.Set(alias, at(p.part(pick), rest))
	}
	v.Extracted = out.JSON()
	return true, nil
}

// pickOf divides a path below values into the channel, or the item of a list in it, to which it leads first, and the rest. ok is false for all values.
func pickOf(path string) (pick checkpointer.Pick, rest string, ok bool) {
	end := strings.IndexAny(path, ".[")
	if path == "" || end == 0 {
		return pick, path, false
	}
	if end < 0 {
		return checkpointer.Pick{Channel: path, Whole: true}, "", true
	}
	pick.Channel, rest = path[:end], strings.TrimPrefix(path[end:], ".")
	if strings.HasPrefix(rest, "[") {
		if close := strings.IndexByte(rest, ']'); close > 0 {
			if n, err := strconv.Atoi(rest[1:close]); err == nil {
				pick.Item = n
				return pick, strings.TrimPrefix(rest[close+1:], "."), true
			}
		}
	}
	pick.Whole = true
	return pick, rest, true
}

// partial reads parts of the values of a thread.
type partial struct {
	*Service
	v     *View
	picks []checkpointer.Pick
	parts []json.RawMessage // of picks
	// shown is an object with the messages as they are shown, when they are not those of the checkpoint; nil: they are.
	shown json.RawMessage
	key   string // the channel of the messages
}

func (p *partial) add(pick checkpointer.Pick) {
	if !slices.Contains(p.picks, pick) {
		p.picks = append(p.picks, pick)
	}
}

// part returns what was read for a pick; nil when there is no such value.
func (p *partial) part(pick checkpointer.Pick) json.RawMessage {
	if p.shown != nil && pick.Channel == p.key {
		path := pick.Channel
		if !pick.Whole {
			path += "[" + strconv.Itoa(pick.Item) + "]"
		}
		return at(p.shown, path)
	}
	if i := slices.Index(p.picks, pick); i >= 0 && i < len(p.parts) {
		return p.parts[i]
	}
	return nil
}

// read reads the parts. ok is false when they are not known without all values.
func (p *partial) read(ctx context.Context) (ok bool, err error) {
	if p.v.Head == "" || len(p.picks) == 0 {
		return true, nil
	}
	look := p.Overlay.Look(ctx, jsonobj.Of(p.v.Metadata).Text("graph_id"), overlay.Lists)
	p.key = look.Key
	if !look.On || !slices.ContainsFunc(p.picks, p.isMessages) {
		return p.pick(ctx)
	}
	r := p.Overlay.Read(p.v.ID, look)
	defer r.Done()
	single := !slices.ContainsFunc(p.picks, func(pick checkpointer.Pick) bool { return pick.Whole && p.isMessages(pick) })
	if single {
		if single, err = r.AsStored(ctx, p.v.Head); err != nil {
			return false, err
		}
	}
	if single {
		if ok, err := p.pick(ctx); !ok || err != nil {
			return ok, err
		}
		plain := true
		for i, part := range p.parts {
			plain = plain && !(p.isMessages(p.picks[i]) && overlay.Damaged(part))
		}
		if plain {
			return true, nil
		}
	}
	// How messages are shown depends on all of them, and on the text of their summary.
	messages := checkpointer.Pick{Channel: p.key, Whole: true}
	p.picks = slices.DeleteFunc(p.picks, p.isMessages)
	p.add(messages)
	for _, name := range eventstore.SummaryChannels {
		p.add(checkpointer.Pick{Channel: name, Whole: true})
	}
	if ok, err := p.pick(ctx); !ok || err != nil || p.parts == nil {
		return ok, err
	}
	values := &jsonobj.Object{}
	for _, name := range append([]string{p.key}, eventstore.SummaryChannels[:]...) {
		if part := p.part(checkpointer.Pick{Channel: name, Whole: true}); part != nil {
			values.Set(name, part)
		}
	}
	if p.shown, err = r.Values(ctx, p.v.Head, values.JSON(), overlay.RecordView); err != nil {
		return false, fmt.Errorf("values of thread %s: %w", p.v.ID, err)
	}
	return true, nil
}

func (p *partial) isMessages(pick checkpointer.Pick) bool { return pick.Channel == p.key }

// pick reads what is picked, as the checkpoint has it.
func (p *partial) pick(ctx context.Context) (ok bool, err error) {
	// As for all values.
	p.parts, ok, err = p.Snapshots.Pick(access.Everything(ctx), checkpointer.Key{Thread: p.v.ID, ID: p.v.Head}, p.picks)
	if errors.Is(err, checkpointer.ErrLost) {
		p.lose(ctx, p.v, err)
		p.picks, p.parts = nil, nil
		return true, nil
	}
	return ok, err
}

// rootOf divides a path of a search into the member of the thread that it begins with, and the rest.
func rootOf(path string) (root, rest string) {
	root, rest, _ = strings.Cut(path, ".")
	if i := strings.IndexByte(root, '['); i >= 0 {
		root, rest = root[:i], strings.TrimPrefix(path[i:], ".")
	}
	return root, rest
}

// root returns the member of a thread from which a path extracts; nil when there is none.
func (v *View) root(name string) json.RawMessage {
	switch name {
	case "values":
		return v.Values
	case "metadata":
		return v.Metadata
	case "config":
		return v.Config
	case "interrupts":
		return v.Interrupts
	}
	return nil
}

// extract returns {alias: value at the path, or null}.
func extract(v *View, paths map[string]string) json.RawMessage {
	out := &jsonobj.Object{}
	for _, alias := range slices.Sorted(maps.Keys(paths)) {
		root, rest := rootOf(paths[alias])
		out.Set(alias, at(v.root(root), rest))
	}
	return out.JSON()
}

// at returns the value at a path, or null.
func at(from json.RawMessage, path string) json.RawMessage {
	if len(from) > 0 {
		if r, ok := walk(gjson.ParseBytes(from), path); ok {
			return json.RawMessage(r.Raw)
		}
	}
	return json.RawMessage(`null`)
}

// walk follows a path such as `items[-1].name`.
func walk(at gjson.Result, path string) (gjson.Result, bool) {
	for path != "" {
		if path[0] == '[' {
			end := strings.IndexByte(path, ']')
			if end < 0 || !at.IsArray() {
				return at, false
			}
			n, err := strconv.Atoi(path[1:end])
			items := at.Array()
			if n < 0 {
				n += len(items)
			}
			if err != nil || n < 0 || n >= len(items) {
				return at, false
			}
			at, path = items[n], strings.TrimPrefix(path[end+1:], ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		key := path
		if end >= 0 {
			key = path[:end]
		}
		if !at.IsObject() {
			return at, false
		}
		next, ok := gjson.Result{}, false
		at.ForEach(func(k, v gjson.Result) bool {
			if k.String() == key {
				next, ok = v, true
			}
			return true
		})
		if !ok {
			return at, false
		}
		at = next
		path = strings.TrimPrefix(path[len(key):], ".")
	}
	return at, true
}
