package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/access/audit"
	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
	"understudy/thread"
)

// threadHandlers serve threads and their states.
type threadHandlers struct {
	*base
	*ownership
	*states
}

func (s *threadHandlers) routes() {
	s.handle("POST", "/threads", members, s.createThread)
	s.handle("POST", "/threads/search", members, s.searchThreads)
	s.handle("GET", "/threads/{thread_id}", members, s.existing(func(c *fiber.Ctx, _ *caller, v *thread.View) error {
		v, err := s.Threads.Get(c.UserContext(), v.ID)
		if fault.Is(err, fault.NotFound) { // it was deleted meanwhile
			return deerflow.NoThread(web.Param(c, "thread_id"))
		} else if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Thread(v, true))
	}))
	s.handle("PATCH", "/threads/{thread_id}", members, s.existing(s.patchThread))
	s.handle("DELETE", "/threads/{thread_id}", members, s.deleteThread)
	s.handle("GET", "/threads/{thread_id}/state", members, s.existing(func(c *fiber.Ctx, _ *caller, v *thread.View) error {
		return s.sendState(c, v.ID, "")
	}))
	s.handle("POST", "/threads/{thread_id}/state", members, s.existing(s.updateState))
	s.handle("POST", "/threads/{thread_id}/history", members, s.ownThread(s.history))
}

func (s *threadHandlers) createThread(c *fiber.Ctx, who *caller) error {
	return s.form(c, func(f *deerflow.Form) error {
		t := f.Text("thread_id", 0, maxText)
		if t != nil && f.Err() == nil {
			f.Thread("thread_id")
		}
		f.Text("assistant_id", 0, maxText)
		metadata := f.Dict("metadata")
		if err := f.Err(); err != nil {
			return err
		}
		key := id.NewThread()
		if t != nil {
			key = id.Thread(*t)
		}
		v, err := s.ensure(c, who, key, metadata)
		if none := (*deerflow.Failure)(nil); who.named && errors.As(err, &none) {
			v, err = s.takeOver(c, who, key)
		}
		if err != nil {
			return err
		}
		if err := s.settleFiles(v); err != nil {
			return err
		}
		web.Of(c).Thread = string(v.ID)
		return web.SendJSON(c, deerflow.Thread(v, false))
	})
}

// takeOver gives another user's thread to the user whom a channel names. A channel creates a thread before it knows whose chat it is, and names the user from then on.
func (s *threadHandlers) takeOver(c *fiber.Ctx, who *caller, t id.Thread) (*thread.View, error) {
	v, err := s.bare(c.UserContext(), t)
	if err != nil {
		return nil, err
	}
	if err := s.settleFiles(v); err != nil { // of the owner before: only one former owner is noted
		return nil, err
	}
	before := ownerOf(v.Metadata)
	o := &jsonobj.Object{}
	o.SetText(deerflow.OwnerKey, who.id)
	o.SetText(deerflow.FormerOwnerKey, before)
	v, err = s.Threads.Patch(access.With(c.UserContext(), access.System), t, thread.Patch{
		Metadata: o.JSON(), Quiet: true,
		Check: func(row *thread.Thread, active bool) error {
			switch {
			case active:
				return fault.New(fault.Conflict, "Thread has a run in flight. Take it over after the run finishes.")
			case ownerOf(row.Metadata) != before:
				return fault.New(fault.Conflict, "Thread was given to another user meanwhile. Send the request again to take it over.")
			}
			return nil
		},
		Audit: &audit.Entry{
			Event: audit.ThreadOwner, Identity: who.id, Source: s.Client(c), Resource: "thread " + string(t), Outcome: "done",
			Detail: fmt.Sprintf("a channel gave the thread of user %q to user %q", before, who.id),
		},
	})
	if err == nil {
		s.Log.InfoContext(c.UserContext(), "a channel gave a thread to another user", "thread_id", t, "user", who.id, "before", before)
	}
	return v, err
}

// settleFiles moves the files of a thread from its former owner to its owner. The owner changes first, so that no run of the former owner begins while files move; a move that
// failed then, or was interrupted, is repeated here when the thread is created again.
func (s *threadHandlers) settleFiles(v *thread.View) error {
	former := gjson.GetBytes(v.Metadata, deerflow.FormerOwnerKey).String()
	return s.DeerFlow.Home.Move(former, ownerOf(v.Metadata), string(v.ID))
}

func (s *threadHandlers) searchThreads(c *fiber.Ctx, who *caller) error {
	return s.form(c, func(f *deerflow.Form) error {
		metadata := f.Dict("metadata")
		checkFilter(f, metadata)
		q := thread.Search{Query: thread.Query{SortBy: "updated_at", Limit: f.Int("limit", 100, 1, 1000), Offset: f.Int("offset", 0, 0, 1<<30)}, NoValues: true}
		if status := f.Text("status", 0, 100); status != nil {
			q.Status = thread.Status(*status)
		}
		if err := f.Err(); err != nil {
			return err
		}
		q.Metadata = stamped(metadata, who.id)
		page, _, err := s.Threads.Search(c.UserContext(), q)
		if err != nil {
			return err
		}
		q.NoValues, q.Extract = true, map[string]string{"title": "values.title"}
		out := make([]json.RawMessage, len(page))
		for i, v := range page {
			if err := s.Threads.Show(c.UserContext(), q, v); err != nil {
				return err
			}
			out[i] = deerflow.ThreadRow(v)
		}
		return web.SendJSON(c, deerflow.Of(out))
	})
}

var filterKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// checkFilter refuses what the metadata of threads cannot be compared with.
func checkFilter(f *deerflow.Form, metadata json.RawMessage) {
	var bad []string
	gjson.ParseBytes(metadata).ForEach(func(k, v gjson.Result) bool {
		kind := ""
		switch {
		case !filterKey.MatchString(k.Str):
			bad = append(bad, "'"+k.Str+"' (unsafe key)")
		case v.IsObject():
			kind = "dict"
		case v.IsArray():
			kind = "list"
		case v.Type == gjson.Number && math.Abs(v.Num) >= 1<<63:
			kind = "int"
		}
		if kind != "" {
			bad = append(bad, "'"+k.Str+"' (unsupported value type "+kind+")")
		}
		return true
	})
	if len(bad) > 0 {
		f.FailWith("metadata", "value_error", "Value error, Invalid metadata filter entries: "+strings.Join(bad, ", "), map[string]any{"error": struct{}{}})
	}
}

func (s *threadHandlers) patchThread(c *fiber.Ctx, _ *caller, v *thread.View) error {
	return s.form(c, func(f *deerflow.Form) error {
		metadata := f.Dict("metadata")
		if err := f.Err(); err != nil {
			return err
		}
		p := thread.Patch{Metadata: stamped(metadata, ""), Quiet: onlyPin(metadata)}
		next, err := s.Threads.Patch(c.UserContext(), v.ID, p)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Thread(next, false))
	})
}

// onlyPin reports whether a patch pins a thread and does nothing else: its place among the others stays.
func onlyPin(metadata json.RawMessage) bool {
	o := jsonobj.Of(metadata)
	pin := string(o.Get("deerflow_pinned"))
	return o.Len() == 1 && (pin == "true" || pin == "false")
}

func (s *threadHandlers) deleteThread(c *fiber.Ctx, who *caller) error {
	t := web.Param(c, "thread_id")
	v, err := s.ofPath(c, who, t)
	if err != nil {
		return err
	}
	if busy, err := s.busy(c, t); err != nil {
		return err
	} else if busy {
		return fault.New(fault.Conflict, "Thread has work in flight. Delete it after the work finishes.")
	}
	had := s.DeerFlow.Home.Has(who.id, t)
	if err := s.Threads.Delete(c.UserContext(), v.ID); err != nil { // with its files
		return err
	}
	if _, err := s.DeerFlow.Home.Remove(who.id, t); err != nil { // again: an upload may have come in between, and what cannot be deleted is an error here
		return err
	}
	text := "Deleted local thread data for " + t
	if !had {
		text = "No local data for " + t
	}
	return web.SendJSON(c, deerflow.Success(text))
}

func (s *threadHandlers) sendState(c *fiber.Ctx, t id.Thread, at id.Checkpoint) error {
	snapshot, err := s.Threads.State(c.UserContext(), checkpointer.Key{Thread: t, ID: at}, false)
	if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.State(snapshot))
}

// updateState writes values into the state, such as another title.
func (s *threadHandlers) updateState(c *fiber.Ctx, _ *caller, v *thread.View) error {
	return s.form(c, func(f *deerflow.Form) error {
		values, node, at := f.Object("values"), f.Text("as_node", 0, 1000), f.Text("checkpoint_id", 0, 100)
		f.Object("checkpoint") // as in the Gateway, checkpoint_id alone counts
		if err := f.Err(); err != nil {
			return err
		}
		if unknown := deerflow.UnknownFields(values); unknown != "" {
			return fault.New(fault.Unprocessable, "Unknown thread-state field(s): "+unknown)
		}
		if at != nil {
			if err := s.checkpoint(c, v.ID, *at); err != nil {
				return err
			}
		}
		if busy, err := s.busy(c, string(v.ID)); err != nil {
			return err
		} else if busy {
			return fault.New(fault.Conflict, "Thread has a run in flight. Update state after the run finishes.")
		}
		place := thread.Place{Key: checkpointer.Key{Thread: v.ID}}
		if at != nil {
			place.ID = id.Checkpoint(*at)
		}
		as := ""
		if node != nil {
			as = *node
		}
		next, err := s.write(c, v, place, values, as)
		if fault.Is(err, fault.NotFound) {
			return deerflow.Fail(http.StatusNotFound, "Checkpoint not found")
		} else if err != nil {
			return err
		}
		return s.sendState(c, v.ID, next.ID)
	})
}

func (s *threadHandlers) history(c *fiber.Ctx, _ *caller, t string) error {
	return s.form(c, func(f *deerflow.Form) error {
		q := thread.HistoryQuery{Thread: id.Thread(t), Limit: f.Int("limit", 10, 1, 100)}
		if before := f.Text("before", 0, 100); before != nil {
			q.Before = id.Checkpoint(*before)
		}
		if err := f.Err(); err != nil {
			return err
		}
		entries, err := s.Threads.ReadHistory(c.UserContext(), q)
		if fault.Is(err, fault.NotFound) { // a thread without an owner has no history
			return web.SendJSON(c, []byte("[]"))
		} else if err != nil {
			return err
		}
		defer entries.Close()
		out := []json.RawMessage{}
		for {
			e, err := entries.Next(c.UserContext())
			if errors.Is(err, io.EOF) {
				return web.SendJSON(c, deerflow.Of(out))
			} else if err != nil {
				return err
			}
			out = append(out, deerflow.HistoryEntry(e, len(out) == 0 && q.Before == ""))
		}
	})
}
