package lead

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"understudy/deerflow/sandbox"
	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

const (
	titlePrompt = `Name this conversation in at most %d words, in the language of the user. Answer with the name alone: no quotes, no full stop.

{conversation}`
	titleChars = 500 // of the question, and of the answer, that the model is shown
)

// title names a thread once: by the model that the settings name for titles, from the first question and its answer, else after the question. Whatever the model does,
// the run continues, with a title.
func (g *Graph) title(set settings.Title, models *models) agent.Middleware {
	o := agent.TitleOptions{Prompt: fmt.Sprintf(titlePrompt, set.MaxWords)}
	if set.Model != "" {
		var err error
		if o.Model, err = models.get(set.Model, thinking{}); err != nil {
			g.o.Log.Warn("threads are named after their first question: the model for titles cannot be used", "model", set.Model, "error", err, "fix", "correct title.model_name in config.yaml")
		}
	}
	return agent.Middleware{
		Name:  "TitleMiddleware",
		State: map[string]pregel.Channel{"title": pregel.LastValue()},
		AfterModel: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			if have, _, _ := pregel.Get[string](state, "title"); have != "" {
				return nil, nil
			}
			list := agent.Messages(state)
			asked, at := question(list)
			if at < 0 {
				return nil, nil
			}
			if answer, ok := firstAnswer(list[at+1:]); ok && o.Model.LLM != nil {
				text, err := agent.WriteTitle(ctx, o, sandbox.Head(asked, titleChars), sandbox.Head(answer, titleChars), "middleware:title")
				if err == nil {
					return pregel.Values{"title": strings.TrimSpace(sandbox.Head(text, set.MaxChars))}, nil
				}
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				pregel.LogOf(ctx).Warn("the model wrote no title; the beginning of the question is the title", "model", set.Model, "error", err)
			}
			return pregel.Values{"title": shortened(asked, set.MaxChars)}, nil
		}},
	}
}

// question returns the first thing that a person asked, and its place; -1 for none.
func question(list []message.Message) (string, int) {
	at := slices.IndexFunc(list, func(m message.Message) bool { return m.Type == message.TypeHuman && !m.HiddenFromPeople() })
	if at < 0 {
		return "", at
	}
	return list[at].Text(), at
}

// firstAnswer returns the answer to the first question; "" when it only calls tools. ok is false when the model failed, or there are further questions.
func firstAnswer(list []message.Message) (text string, ok bool) {
	for _, m := range list {
		switch {
		case m.Type == message.TypeHuman && !m.HiddenFromPeople():
			return "", false
		case m.Type == message.TypeAI && !ok:
			text, ok = m.Text(), !middleware.IsFallback(m)
		}
	}
	return text, ok
}

// shortened returns the beginning of a text, on one line.
func shortened(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	runes := []rune(text)
	switch {
	case text == "":
		return "New Conversation"
	case len(runes) > min(50, most):
		return string(runes[:min(50, most)]) + "..."
	}
	return text
}
