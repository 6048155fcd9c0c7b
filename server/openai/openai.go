// Package openai is the wire of OpenAI's API under /v1: models, chat completions and responses, as programs that chat by that API use them. An assistant is a
// model, and an answer is a run. The package reads requests, folds the records of a run to an answer, and writes both forms of it; it starts nothing.
package openai

import (
	"strconv"
	"strings"
	"time"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Error is why a request is refused: a fault with the parameter that caused it, and a code that programs compare.
type Error struct {
	Param string // "": none
	Code  string // "": none
	fault *fault.Error
}

func (e *Error) Error() string { return e.fault.Error() }

// Unwrap makes the fault known to package server, which has the statuses.
func (e *Error) Unwrap() error { return e.fault }

// refuse returns the error for a parameter that makes no sense.
func refuse(param, message string) error {
	return &Error{Param: param, fault: fault.New(fault.Invalid, message)}
}

// refuseValue returns the error for a parameter that no graph can honor.
func refuseValue(param, message string) error {
	return &Error{Param: param, Code: "unsupported_parameter", fault: fault.New(fault.Invalid, message)}
}

// NoModel is the error for a model that is no assistant.
func NoModel(model string) error {
	return &Error{Param: "model", Code: "model_not_found", fault: fault.Newf(fault.NotFound, "The model '%s' does not exist: name an assistant by its id, or a graph", model)}
}

// NoResponse is the error for a previous response that there is not.
func NoResponse() error {
	return &Error{Param: "previous_response_id", Code: "previous_response_not_found", fault: fault.New(fault.Invalid, "There is no response with this id, or it was not stored")}
}

// RunFailed is the code of the error of a run that failed.
const RunFailed = "run_failed"

// ErrorType is the type of an error with an HTTP status.
func ErrorType(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 403:
		return "permission_error"
	case status == 429:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// AppendError appends the body of a request that failed.
func AppendError(dst []byte, message, kind, param, code string) []byte {
	dst = append(append(dst, `{"error":`...), appendFailure(nil, message, kind, param, code)...)
	return append(dst, '}')
}

func appendFailure(dst []byte, message, kind, param, code string) []byte {
	dst = jsonobj.AppendText(append(dst, `{"message":`...), message)
	dst = jsonobj.AppendText(append(dst, `,"type":`...), kind)
	dst = appendTextOrNull(append(dst, `,"param":`...), param)
	return append(appendTextOrNull(append(dst, `,"code":`...), code), '}')
}

func appendTextOrNull(dst []byte, text string) []byte {
	if text == "" {
		return append(dst, "null"...)
	}
	return jsonobj.AppendText(dst, text)
}

func appendTime(dst []byte, at time.Time) []byte { return strconv.AppendInt(dst, at.Unix(), 10) }

// ModelID is the name of an assistant as a model: the default assistant of a graph has the name of the graph, others have their id.
func ModelID(a *assistant.Assistant) string {
	if a.ID == id.DefaultAssistant(a.GraphID) {
		return a.GraphID
	}
	return string(a.ID)
}

// ModelsAtOnce is how many assistants the list of models reads at a time.
const ModelsAtOnce = 1000

// AssistantOf returns the assistant that a model names: by its ID, or by its graph, whose default one it is.
func AssistantOf(model string) id.Assistant {
	if a := id.Canonical(model); a != "" {
		return id.Assistant(a)
	}
	return id.DefaultAssistant(model)
}

// AppendModel appends an assistant as a model. OpenAI's models have no name and description; programs such as Open WebUI show them.
func AppendModel(dst []byte, a *assistant.Assistant) []byte {
	dst = jsonobj.AppendText(append(dst, `{"id":`...), ModelID(a))
	dst = appendTime(append(dst, `,"object":"model","created":`...), a.CreatedAt)
	dst = jsonobj.AppendText(append(dst, `,"owned_by":"understudy","name":`...), a.Name)
	if a.Description != nil && *a.Description != "" {
		dst = jsonobj.AppendText(append(dst, `,"description":`...), *a.Description)
	}
	return append(dst, '}')
}

// routes are the beginnings of the paths of this API.
var routes = []string{"/v1/models", "/v1/chat/", "/v1/responses", "/v1/conversations"}

// Serves reports whether a path is one of this API, so that errors have its form. Paths that only resemble one are none.
func Serves(path string) bool {
	for _, r := range routes {
		if rest, ok := strings.CutPrefix(path, r); ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(r, "/")) {
			return true
		}
	}
	return false
}
