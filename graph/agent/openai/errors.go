package openai

import (
	"net/http"

	"github.com/tidwall/gjson"

	"understudy/graph/agent/llm"
	"understudy/internal/jsonscan"
)

// explain reads the error of a refused request.
func explain(body []byte, e *llm.Error) {
	if !jsonscan.Valid(body) {
		return
	}
	in := gjson.ParseBytes(body)
	if in.IsArray() { // Gemini
		in = in.Get("0")
	}
	if fill(in, e) {
		return
	}
	e.Message, e.Type, e.Code = textOf(in.Get("message")), textOf(in.Get("type")), textOf(in.Get("code"))
}

// fill copies an error into e, and reports whether there was one: an object, a text, or, in old releases of vLLM, members of the answer
// itself. FastAPI calls it detail, MiniMax base_resp.
func fill(in gjson.Result, e *llm.Error) bool {
	switch v := in.Get("error"); {
	case v.IsObject() && len(v.Map()) > 0:
		e.Message, e.Type, e.Code, e.Param = textOf(v.Get("message")), textOf(v.Get("type")), textOf(v.Get("code")), textOf(v.Get("param"))
		if more := v.Get("metadata.raw"); more.Exists() && e.Message != "" { // OpenRouter: what the provider behind it said
			e.Message += ": " + textOf(more)
		}
		if e.Message == "" {
			e.Message = v.Raw
		}
		return true
	case v.Type == gjson.String && v.Str != "", v.Type == gjson.Number && v.Num != 0, v.Type == gjson.True, v.IsArray() && len(v.Array()) > 0:
		e.Message = textOf(v)
		if v.Type != gjson.String && in.Get("message").Exists() {
			e.Message = textOf(in.Get("message"))
		}
		return true
	}
	if code := in.Get("base_resp.status_code"); code.Exists() && code.Int() != 0 {
		e.Message, e.Code = textOf(in.Get("base_resp.status_msg")), textOf(code)
		return true
	}
	if text := textOf(in.Get("x_groq.error")); text != "" {
		e.Message = text
		return true
	}
	detail := textOf(in.Get("detail"))
	if in.Get("object").Str == "error" || detail != "" && !in.Get("choices").Exists() {
		e.Message, e.Type, e.Code = textOf(in.Get("message")), textOf(in.Get("type")), textOf(in.Get("code"))
		if e.Message == "" {
			e.Message = detail
		}
		return true
	}
	if e.Status == http.StatusOK && in.Get("choices").Exists() {
		for _, choice := range in.Get("choices").Array() {
			if v := choice.Get("error"); v.IsObject() && len(v.Map()) > 0 { // OpenRouter
				e.Message, e.Code = textOf(v.Get("message")), textOf(v.Get("code"))
				return true
			}
		}
	}
	return false
}

// textOf is a JSON text's text, and of other values what stands there; "" for null.
func textOf(v gjson.Result) string {
	switch v.Type {
	case gjson.String:
		return v.Str
	case gjson.Null:
		return ""
	}
	return v.Raw
}
