package deerflow

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	"understudy/deerflow"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonobj"
)

// Row is an event as a row of the Gateway's feed.
type Row struct {
	*eventstore.Event
	Thread id.Thread
	User   string
	// Feedback is what the caller thinks of the run; nil when nothing was said, or this is not the row that shows it.
	Feedback *deerflow.Feedback
	// Took is how long the run took, on its last answer; nil on other rows.
	Took *time.Duration
}

// Append appends the row.
func (r *Row) Append(dst []byte) []byte {
	o := &jsonobj.Object{}
	o.SetText("thread_id", string(r.Thread))
	o.SetText("run_id", string(r.Run))
	o.SetText("user_id", r.User)
	o.SetText("event_type", r.Type)
	o.SetText("category", r.Category)
	content := json.RawMessage(r.Content)
	if r.Took != nil {
		content = withDuration(content, *r.Took)
	}
	o.Set("content", rawOr(content, "null"))
	metadata := jsonobj.Of(r.Metadata)
	if r.Category == eventstore.CategoryMessage && metadata.Get("caller") == nil {
		metadata.SetText("caller", "lead_agent") // messages of the summarizer and of subagents are in no transcript
	}
	if r.Type == eventstore.TypeAI {
		used := "{}"
		if u := gjson.GetBytes(r.Content, "usage_metadata"); u.IsObject() {
			used = u.Raw
		}
		// The log has the last two if the graph reported the call.
		for _, d := range []struct{ key, value string }{{"usage", used}, {"latency_ms", "null"}, {"llm_call_index", "null"}} {
			if metadata.Get(d.key) == nil {
				metadata.Set(d.key, json.RawMessage(d.value))
			}
		}
	}
	o.Set("metadata", metadata.JSON())
	o.Set("seq", json.RawMessage(fmt.Sprint(int64(r.Seq))))
	o.SetText("created_at", Stamp(r.CreatedAt))
	o.Set("feedback", feedbackOf(r.Feedback))
	return append(dst, o.JSON()...)
}

// withDuration adds turn_duration, in whole seconds, to a message.
func withDuration(content json.RawMessage, took time.Duration) json.RawMessage {
	m, err := jsonobj.Parse(content)
	if err != nil {
		return content
	}
	extra := jsonobj.Of(m.Get("additional_kwargs"))
	extra.Set("turn_duration", json.RawMessage(fmt.Sprint(int(took.Round(time.Second)/time.Second))))
	m.Set("additional_kwargs", extra.JSON())
	return m.JSON()
}

func feedbackOf(f *deerflow.Feedback) json.RawMessage {
	if f == nil {
		return json.RawMessage("null")
	}
	return encode(struct {
		ID      string  `json:"feedback_id"`
		Rating  int     `json:"rating"`
		Comment *string `json:"comment"`
	}{f.ID, f.Rating, f.Comment})
}

// Rows appends a list of rows.
func Rows(dst []byte, rows []*Row) []byte {
	dst = append(dst, '[')
	for i, r := range rows {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.Append(dst)
	}
	return append(dst, ']')
}

// Feedback is one piece of feedback.
func Feedback(f deerflow.Feedback) json.RawMessage {
	return encode(struct {
		ID        string  `json:"feedback_id"`
		Run       string  `json:"run_id"`
		Thread    string  `json:"thread_id"`
		User      string  `json:"user_id"`
		Message   *string `json:"message_id"`
		Rating    int     `json:"rating"`
		Comment   *string `json:"comment"`
		CreatedAt string  `json:"created_at"`
		// Scores is there for feedback that was given under keys of LangGraph.
		Scores json.RawMessage `json:"scores,omitempty"`
	}{f.ID, string(f.Run), string(f.Thread), f.User, f.Message, f.Rating, f.Comment, Stamp(f.CreatedAt), f.Scores})
}

// Feedbacks is a list of them.
func Feedbacks(list []deerflow.Feedback) json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, f := range list {
		out[i] = Feedback(f)
	}
	return encode(out)
}

// Tally counts feedback of a run.
func Tally(r string, t deerflow.Tally) json.RawMessage {
	return encode(struct {
		Run      string `json:"run_id"`
		Total    int    `json:"total"`
		Positive int    `json:"positive"`
		Negative int    `json:"negative"`
	}{r, t.Total, t.Positive, t.Negative})
}

// TypeWorkspaceChanges is the type of the row that says which files a run changed.
const TypeWorkspaceChanges = "workspace_changes"

// WorkspaceChanges are the changes in the row of a run; nil: nothing was changed. files and diff say whether each file is shown, and how its text differs.
func WorkspaceChanges(e *eventstore.Event, files, diff bool) json.RawMessage {
	o := &jsonobj.Object{}
	if e != nil {
		o = jsonobj.Of(jsonobj.Of(e.Metadata).Get(TypeWorkspaceChanges))
		if o.Len() == 0 { // of another writer
			o = jsonobj.Of(e.Content)
		}
	}
	found := o.Len() > 0
	for _, d := range []struct{ key, value string }{
		{"version", "1"}, {"summary", `{"created":0,"modified":0,"deleted":0,"symlink_created":0,"additions":0,"deletions":0,"truncated":false}`}, {"files", "[]"}, {"limits", "{}"},
	} {
		if o.Get(d.key) == nil {
			o.Set(d.key, json.RawMessage(d.value))
		}
	}
	switch {
	case !files:
		o.Set("files", json.RawMessage("[]"))
	case !diff:
		list := []json.RawMessage{}
		gjson.ParseBytes(o.Get("files")).ForEach(func(_, file gjson.Result) bool {
			one := jsonobj.Of(json.RawMessage(file.Raw))
			one.SetText("diff", "")
			list = append(list, one.JSON())
			return true
		})
		o.Set("files", encode(list))
	}
	o.Set("available", encode(found))
	return o.JSON()
}
