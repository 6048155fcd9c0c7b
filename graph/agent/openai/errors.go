package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error is what a server said went wrong, before an answer or in the middle of it.
type Error struct {
	Status     int    // 200 when it came in a stream
	Type, Code string // "" when the server did not say
	Message    string
	Param      string
	RequestID  string
	RetryAfter time.Duration // 0: not said
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("model: ")
	if e.Status != http.StatusOK {
		fmt.Fprintf(&b, "%d %s: ", e.Status, http.StatusText(e.Status))
	}
	b.WriteString(e.Message)
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	return b.String()
}

// ContextOverflow reports that the conversation was too long for the model.
func (e *Error) ContextOverflow() bool {
	return e.Code == "context_length_exceeded" || strings.Contains(e.Message, "maximum context length") || strings.Contains(e.Message, "context length exceeded")
}

// envelope holds an error as servers send it: an object, a text, or, in old releases of vLLM, members of the answer itself.
type envelope struct {
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"`
	Message json.RawMessage `json:"message"`
	Detail  json.RawMessage `json:"detail"` // FastAPI
	Type    json.RawMessage `json:"type"`
	Code    json.RawMessage `json:"code"`
}

// fill copies what is said into e, and reports whether there was an error at all.
func (v *envelope) fill(e *Error) bool {
	switch raw := bytes.TrimSpace(v.Error); {
	case len(raw) > 0 && raw[0] == '{':
		var inner struct {
			Message, Type, Code, Param json.RawMessage
		}
		if json.Unmarshal(raw, &inner) != nil {
			return false
		}
		e.Message, e.Type, e.Code, e.Param = text(inner.Message), text(inner.Type), text(inner.Code), text(inner.Param)
		if e.Message == "" {
			e.Message = string(raw)
		}
		return true
	case len(raw) > 0 && !bytes.Equal(raw, []byte("null")) && !bytes.Equal(raw, []byte("false")):
		e.Message = text(raw)
		return true
	}
	if v.Object == "error" || len(v.Detail) > 0 {
		e.Message, e.Type, e.Code = text(v.Message), text(v.Type), text(v.Code)
		if e.Message == "" {
			e.Message = text(v.Detail)
		}
		return true
	}
	return false
}

// text is a JSON string's text, and of other values what stands there; "" for null.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
