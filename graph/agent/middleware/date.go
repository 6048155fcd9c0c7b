package middleware

import (
	"context"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// ContextOptions control DynamicContext.
type ContextOptions struct {
	// About returns what the model has to know of the run's user, such as what is remembered of them; "": nothing. It is called once for each thread. nil: nothing.
	About func(ctx context.Context) string
	Now   func() time.Time // nil: time.Now, in the time zone of the server
}

// contextKey holds the reminders of a thread.
const contextKey = "context_reminders"

// contextReminder is what the model knows before a message.
type contextReminder struct {
	Message string `json:"message_id"`
	Date    string `json:"date"` // of the day
	Text    string `json:"text"`
}

// DynamicContext lets the model know the date, and what About returns, in front of the first message of a thread; on a later day the new date, in front of that day's
// first message. So neither the instructions nor what precedes the newest message ever change, and providers can cache them. Requests alone have it: the conversation
// stays as people wrote it.
func DynamicContext(o ContextOptions) agent.Middleware {
	if o.Now == nil {
		o.Now = time.Now
	}
	return agent.Middleware{
		Name:    "DynamicContextMiddleware",
		State:   map[string]pregel.Channel{contextKey: pregel.LastValue()},
		Private: true,
		BeforeAgent: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			list := agent.Messages(state)
			if len(list) == 0 || list[len(list)-1].Type != message.TypeHuman {
				return nil, nil
			}
			known := reminders(state)
			today := o.Now().Format("2006-01-02, Monday")
			text := "<current_date>" + today + "</current_date>"
			if n := len(known); n > 0 && known[n-1].Date == today {
				return nil, nil
			} else if n == 0 && o.About != nil {
				if about := o.About(ctx); about != "" {
					text = about + "\n" + text
				}
			}
			return pregel.Values{contextKey: append(slices.Clip(known), contextReminder{list[len(list)-1].ID, today, text})}, nil
		}},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			r.Messages = withReminders(r.Messages, reminders(r.State))
			return next(ctx, r)
		},
	}
}

func reminders(state pregel.Values) []contextReminder {
	list, _, _ := pregel.Get[[]contextReminder](state, contextKey)
	return list
}

// withReminders puts reminders in front of their messages. Those whose messages were condensed come behind the summary, so that none is lost.
func withReminders(list []message.Message, known []contextReminder) []message.Message {
	if len(known) == 0 {
		return list
	}
	at := make(map[string]int, len(list))
	first := len(list)
	for i, m := range list {
		at[m.ID] = i
		if m.Type == message.TypeHuman && first == len(list) && gjson.GetBytes(m.AdditionalKwargs, "lc_source").String() != "summarization" {
			first = i
		}
	}
	before := map[int][]message.Message{}
	for _, k := range known {
		i, ok := at[k.Message]
		if !ok {
			i = first
		}
		before[i] = append(before[i], reminder("", k.Text))
	}
	out := make([]message.Message, 0, len(list)+len(known))
	for i := range len(list) + 1 {
		out = append(out, before[i]...)
		if i < len(list) {
			out = append(out, list[i])
		}
	}
	return out
}
