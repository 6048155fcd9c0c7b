package gateway

import (
	"encoding/json"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/deerflow/memory"
	"understudy/deerflow/settings"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// memoryHandlers serve what the agent remembers of a user.
type memoryHandlers struct{ *base }

func (s *memoryHandlers) routes() {
	show := func(c *fiber.Ctx) func(*memory.Memory, error) error {
		return func(m *memory.Memory, err error) error {
			if err != nil {
				return err
			}
			return web.SendJSON(c, deerflow.Of(m))
		}
	}
	read := func(c *fiber.Ctx, who *caller) error { return show(c)(s.DeerFlow.Memory.Read(c.UserContext(), who.id)) }
	s.handle("GET", "/memory", members, read)
	s.handle("GET", "/memory/export", members, read)
	s.handle("POST", "/memory/reload", members, read) // it is read at each use
	s.handle("DELETE", "/memory", members, func(c *fiber.Ctx, who *caller) error {
		return show(c)(s.DeerFlow.Memory.Clear(c.UserContext(), who.id))
	})
	s.handle("POST", "/memory/import", members, func(c *fiber.Ctx, who *caller) error {
		return s.WithBody(c, func(body []byte) error {
			if err := jsonOnly(c, body); err != nil {
				return err
			}
			f, err := deerflow.Body(body)
			if err != nil {
				return err
			}
			f.Each("facts", func(i int, fact gjson.Result) { f.Fields("facts", i, fact, "id", "content") })
			if err := f.Err(); err != nil {
				return err
			}
			var m memory.Memory
			if err := json.Unmarshal(body, &m); err != nil {
				return deerflow.Problems{{Type: "value_error", Loc: []any{"body"}, Msg: "Input should be a memory: " + err.Error(), Input: []byte("null")}}
			}
			return show(c)(s.DeerFlow.Memory.Replace(c.UserContext(), who.id, &m))
		})
	})
	s.handle("POST", "/memory/facts", members, func(c *fiber.Ctx, who *caller) error {
		return s.form(c, func(f *deerflow.Form) error {
			content := f.Required("content", 1, maxText)
			category := f.TextOr("category", memory.DefaultCategory, 0, 100)
			e := memory.Edit{Content: &content, Category: &category, Confidence: f.NumberOr("confidence", 0, 1)}
			if err := f.Err(); err != nil {
				return err
			}
			return show(c)(s.DeerFlow.Memory.Add(c.UserContext(), who.id, e))
		})
	})
	s.handle("PATCH", "/memory/facts/{fact}", members, func(c *fiber.Ctx, who *caller) error {
		return s.form(c, func(f *deerflow.Form) error {
			e := memory.Edit{Content: f.Text("content", 1, maxText), Category: f.Text("category", 0, 100), Confidence: f.Number("confidence", 0, 1)}
			if err := f.Err(); err != nil {
				return err
			}
			return show(c)(s.DeerFlow.Memory.Edit(c.UserContext(), who.id, web.Param(c, "fact"), e))
		})
	})
	s.handle("DELETE", "/memory/facts/{fact}", members, func(c *fiber.Ctx, who *caller) error {
		return show(c)(s.DeerFlow.Memory.Delete(c.UserContext(), who.id, web.Param(c, "fact")))
	})
	s.handle("GET", "/memory/config", members, func(c *fiber.Ctx, _ *caller) error {
		set, err := s.DeerFlow.Settings()
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Of(memoryConfig(set)))
	})
	s.handle("GET", "/memory/status", members, func(c *fiber.Ctx, who *caller) error {
		set, err := s.DeerFlow.Settings()
		if err != nil {
			return err
		}
		m, err := s.DeerFlow.Memory.Read(c.UserContext(), who.id)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Of(map[string]any{"config": memoryConfig(set), "data": m}))
	})
}

// memoryConfig has the keys of older and newer releases.
func memoryConfig(set *settings.Settings) any {
	m := set.Memory
	return struct {
		Enabled    bool           `json:"enabled"`
		Path       string         `json:"storage_path"`
		Debounce   int            `json:"debounce_seconds"`
		MaxFacts   int            `json:"max_facts"`
		Confidence float64        `json:"fact_confidence_threshold"`
		Injection  bool           `json:"injection_enabled"`
		MaxTokens  int            `json:"max_injection_tokens"`
		Mode       string         `json:"mode"`
		Flush      float64        `json:"shutdown_flush_timeout_seconds"`
		Manager    string         `json:"manager_class"`
		Backend    map[string]any `json:"backend_config"`
	}{m.Enabled, m.Path, m.Debounce, m.MaxFacts, m.Confidence, m.Injection, m.MaxTokens, m.Mode, m.Flush, m.Manager, map[string]any{"debounce_seconds": m.Debounce}}
}
