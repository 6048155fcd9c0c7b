package compat

import (
	"encoding/json"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// FeedbackGive is the body of POST /feedback/tokens/{token}, as LangSmith takes it.
var FeedbackGive = named("FeedbackGive", objectOf(
	Prop{"score", anyOf(aNumber, aBool).doc("Above 0 and true are a positive rating, others a negative one.")},
	Prop{"value", anything},
	Prop{"comment", typed("null", "string")},
	Prop{"correction", anything},
	Prop{"metadata", anything},
).require("score"))

// Score is feedback that is given under a key.
type Score struct {
	Positive bool
	Comment  *string
	Content  json.RawMessage // all of it, an object
}

// GiveFeedback decodes the body of POST /feedback/tokens/{token}. Members that it does not know are left out.
func GiveFeedback(body []byte) (s Score, err error) {
	o, err := decode(body, FeedbackGive)
	if err != nil {
		return s, err
	}
	s.Positive = o.bool("score") || o.number("score") > 0
	s.Comment = o.textPtr("comment")
	content := &jsonobj.Object{}
	for _, key := range []string{"score", "value", "comment", "correction", "metadata"} {
		if raw := o.raw(key); raw != nil {
			content.Set(key, raw)
		}
	}
	s.Content = content.JSON()
	return s, nil
}

// maxFeedbackKeys bounds the feedback keys of a run.
const (
	maxFeedbackKeys     = 100
	maxFeedbackKeyBytes = 16 << 10 // of all
)

// feedbackKeys reads the member feedback_keys.
func (o object) feedbackKeys() (json.RawMessage, error) {
	raw := o.raw("feedback_keys")
	if len(raw) > maxFeedbackKeyBytes || raw != nil && len(o.texts("feedback_keys")) > maxFeedbackKeys {
		return nil, fault.Newf(fault.Unprocessable, "feedback_keys has up to %d keys and %d KiB", maxFeedbackKeys, maxFeedbackKeyBytes>>10)
	}
	return raw, nil
}
