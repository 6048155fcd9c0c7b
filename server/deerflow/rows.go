package deerflow

import (
	"encoding/json"
	"fmt"
	"time"

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
	o.Set("metadata", metadata.JSON())
	o.Set("seq", json.RawMessage(fmt.Sprint(int64(r.Seq))))
	o.SetText("created_at", stamp(r.CreatedAt))
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
	}{f.ID, string(f.Run), string(f.Thread), f.User, f.Message, f.Rating, f.Comment, stamp(f.CreatedAt)})
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
