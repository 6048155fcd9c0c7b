package gateway

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/server/deerflow"
	"understudy/thread"
)

// states writes the states of threads.
type states struct{ *ownership }

// lastNode is the node at the end of the lead agent.
const lastNode = "SandboxMiddleware.after_agent"

// write writes values into a state as a node. As "", or a node that the graph does not have, it is the one that wrote last, and when nothing waits to be executed the last one of the
// agent: then nothing does afterwards. Without runs the graph would take the values as its input, which has fewer keys.
func (s *states) write(c *fiber.Ctx, v *thread.View, at thread.Place, values json.RawMessage, as string) (next thread.Place, err error) {
	if err := s.attach(c, v); err != nil {
		return next, err
	}
	nodes := []string{as}
	now, err := s.Threads.State(c.UserContext(), at.Key, false)
	if err != nil {
		return next, err
	}
	if as == "" {
		nodes = nil
	}
	if len(now.Next) == 0 {
		nodes = append(nodes, lastNode)
	}
	for _, node := range append(nodes, "") {
		next, err = s.Threads.UpdateState(c.UserContext(), at, [][]graph.StateUpdate{{{Values: values, AsNode: node}}})
		if unknown := (*graph.UnknownNode)(nil); !errors.As(err, &unknown) {
			break
		}
	}
	return next, err
}

// attach makes a thread one of the lead agent, as a run would: a title may be set before the first one.
func (s *states) attach(c *fiber.Ctx, v *thread.View) error {
	if gjson.GetBytes(v.Metadata, "graph_id").Exists() {
		return nil
	}
	o := &jsonobj.Object{}
	o.SetText("graph_id", lead)
	o.SetText("assistant_id", string(id.DefaultAssistant(lead)))
	_, err := s.Threads.Patch(c.UserContext(), v.ID, thread.Patch{Metadata: o.JSON()})
	return err
}

// checkpoint returns an error unless a thread has a checkpoint.
func (s *states) checkpoint(c *fiber.Ctx, t id.Thread, at string) error {
	missing := noCheckpoint(at)
	if at == "" || id.Canonical(at) != at {
		return missing
	}
	snapshot, err := s.Threads.State(c.UserContext(), checkpointer.Key{Thread: t, ID: id.Checkpoint(at)}, false)
	if fault.Is(err, fault.NotFound) || err == nil && snapshot.CreatedAt == "" {
		return missing
	}
	return err
}

func noCheckpoint(at string) error {
	if at == "" {
		return deerflow.Fail(http.StatusNotFound, "Checkpoint not found")
	}
	return deerflow.Fail(http.StatusNotFound, "Checkpoint "+at+" not found")
}
