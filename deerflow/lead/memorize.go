package lead

import (
	"cmp"
	"context"
	"errors"

	"understudy/deerflow/memory"
	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/pregel"
	"understudy/internal/fault"
)

// toolMode is the memory.mode in which nothing is learned of conversations, and the agent keeps what it wants to know.
const toolMode = "tool"

// memoryTools are the tools of that mode.
var memoryTools = []string{"memory_search", "memory_add", "memory_update", "memory_delete"}

const foundFacts = 10 // of a search, unless it says how many

// memorizing are the tools by which the agent changes what is known of the run's user; nil unless the settings want it.
func (g *Graph) memorizing(set settings.Memory) []agent.Tool {
	book := g.o.Memory.Book
	if book == nil || !set.Enabled || set.Mode != toolMode {
		return nil
	}
	subject := func(ctx context.Context) string {
		agent, _ := g.remembers(ctx)
		return memory.Subject(userOf(ctx), agent)
	}
	type search struct {
		Query    string `json:"query" jsonschema:"Words that the fact has."`
		Category string `json:"category,omitempty" jsonschema:"Only facts of this category, such as preference or correction."`
		Limit    int    `json:"limit,omitempty" jsonschema:"At most so many; 10 if left out."`
	}
	type add struct {
		Content    string   `json:"content" jsonschema:"The fact, in one exact sentence."`
		Category   *string  `json:"category,omitempty" jsonschema:"preference, knowledge, context, behavior, goal or correction; context if left out."`
		Confidence *float64 `json:"confidence,omitempty" jsonschema:"How sure it is, from 0 to 1; 0.7 if left out, more for what the user said."`
	}
	type update struct {
		Fact       string   `json:"fact_id" jsonschema:"The id that memory_search shows."`
		Content    *string  `json:"content,omitempty" jsonschema:"The new sentence."`
		Category   *string  `json:"category,omitempty" jsonschema:"The new category."`
		Confidence *float64 `json:"confidence,omitempty" jsonschema:"The new confidence, from 0 to 1."`
	}
	type remove struct {
		Fact string `json:"fact_id" jsonschema:"The id that memory_search shows."`
	}
	return []agent.Tool{
		agent.MustTool(memoryTools[0], "Searches what you know of the user: preferences, corrections, goals. Use it when something said earlier may matter.", func(ctx context.Context, a search) (any, error) {
			m, err := book.Read(ctx, subject(ctx))
			if err != nil {
				return nil, err
			}
			found := m.Search(a.Query, a.Category, cmp.Or(max(a.Limit, 0), foundFacts))
			return map[string]any{"results": found, "count": len(found)}, nil
		}),
		agent.MustTool(memoryTools[1], "Keeps a fact about the user for later conversations.", func(ctx context.Context, a add) (any, error) {
			if a.Confidence == nil {
				sure := 0.7
				a.Confidence = &sure
			}
			if *a.Confidence < 0 || *a.Confidence > 1 {
				return wrong("confidence must be between 0 and 1"), nil
			}
			info, _ := pregel.Info(ctx)
			fact, err := book.Keep(ctx, subject(ctx), memory.Edit{Content: &a.Content, Category: a.Category, Confidence: a.Confidence}, string(info.Thread), set.MaxFacts)
			return kept(fact, "added", err)
		}),
		agent.MustTool(memoryTools[2], "Changes a fact about the user that is outdated or not exact. What you leave out stays.", func(ctx context.Context, a update) (any, error) {
			if a.Confidence != nil && (*a.Confidence < 0 || *a.Confidence > 1) {
				return wrong("confidence must be between 0 and 1"), nil
			}
			_, err := book.Edit(ctx, subject(ctx), a.Fact, memory.Edit{Content: a.Content, Category: a.Category, Confidence: a.Confidence})
			return kept(a.Fact, "updated", err)
		}),
		agent.MustTool(memoryTools[3], "Deletes a fact about the user that is no longer true.", func(ctx context.Context, a remove) (any, error) {
			_, err := book.Delete(ctx, subject(ctx), a.Fact)
			return kept(a.Fact, "deleted", err)
		}),
	}
}

func wrong(text string) any { return map[string]string{"error": text} }

// kept is the result of a change. Mistakes of the model are results.
func kept(fact, status string, err error) (any, error) {
	var f *fault.Error
	switch {
	case err == nil:
		return map[string]string{"fact_id": fact, "status": status}, nil
	case fault.Is(err, fault.Conflict):
		return wrong("Duplicate fact"), nil
	case fault.Is(err, fault.NotFound):
		return wrong("Fact not found: " + fact), nil
	case errors.As(err, &f) && f.Kind != fault.Internal:
		return wrong(f.Message), nil
	}
	return nil, err
}
