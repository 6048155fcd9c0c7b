package middleware

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/internal/jsonobj"
)

// verdictKey is the member of additional_kwargs by which a result of a tool says what it is worth.
const verdictKey = "deerflow_tool_meta"

// verdict is what a result of a tool is worth, with the names of DeerFlow.
type verdict struct {
	Status      string `json:"status"` // success, error, partial_success
	Type        string `json:"error_type,omitempty"`
	Recoverable bool   `json:"recoverable_by_model"` // by calling it with other arguments
	Next        string `json:"recommended_next_action"`
	Source      string `json:"source"` // exception, tool_return, content_analysis, progress_middleware
}

// MarshalJSON writes null for no type, as DeerFlow does.
func (v verdict) MarshalJSON() ([]byte, error) {
	type plain verdict
	o := jsonobj.Of(must(json.Marshal(plain(v))))
	if v.Type == "" {
		o.Set("error_type", []byte("null"))
	}
	return o.JSON(), nil
}

func must(raw []byte, _ error) []byte { return raw }

// errorKind is what words in an error say of it.
type errorKind struct {
	words       []string
	typ         string
	recoverable bool
	next        string
}

// errorKinds are looked for in this order.
var errorKinds = []errorKind{
	{[]string{"401", "403", "unauthorized", "authentication", "invalid api key"}, "auth", false, "stop"},
	{[]string{"rate limit", "rate limited", "rate_limit"}, "rate_limited", false, "summarize"},
	{[]string{"timeout", "timed out", "connection", "network error", "temporarily unavailable"}, "transient", false, "try_alternative"},
	{[]string{"not configured", "not installed", "missing required", "disabled", "no api key"}, "config", false, "stop"},
	{[]string{"permission denied", "access denied", "path traversal", "forbidden"}, "permission", true, "try_alternative"},
	{[]string{"no results found", "no content found", "no images found", "no results"}, "no_results", true, "rewrite_query"},
	{[]string{"not found", "no such file", "does not exist", "404"}, "not_found", true, "rewrite_query"},
	{[]string{"unexpected error", "internal error", "500"}, "internal", false, "stop"},
}

var (
	partialWords = []string{"partial results", "limited results", "truncated", "results may be incomplete", "no results found", "no content found", "no images found"}
	statusCodes  = regexp.MustCompile(`\b(?:401|403|404|500)\b`)
	noError      = []string{"none", "null", "false", "no", "ok", "success", "n/a", ""}
)

// failedWith returns the verdict on an error by its words.
func failedWith(text, source string) verdict {
	text = strings.ToLower(text)
	codes := statusCodes.FindAllString(text, -1)
	for _, k := range errorKinds {
		if slices.ContainsFunc(k.words, func(w string) bool {
			if w[0] >= '0' && w[0] <= '9' {
				return slices.Contains(codes, w)
			}
			return strings.Contains(text, w)
		}) {
			return verdict{"error", k.typ, k.recoverable, k.next, source}
		}
	}
	return verdict{"error", "unknown", true, "try_alternative", source}
}

// verdictOf returns the verdict on a result.
func verdictOf(m message.Message) verdict {
	text := ""
	if m.Content.Blocks == nil {
		text = m.Content.Text
	}
	reported := reportedError(text)
	rest, prefixed := strings.CutPrefix(text, "Error:")
	switch {
	case prefixed:
		return failedWith(rest, "tool_return")
	case reported != "":
		return failedWith(reported, "tool_return")
	case m.Status == message.StatusError && gjson.Valid(text) && gjson.Parse(text).IsObject(): // words of its other members say nothing
		return failedWith("", "tool_return")
	case m.Status == message.StatusError:
		return failedWith(text, "tool_return")
	}
	if kind := errorPage(m.Name, text); kind != nil {
		return verdict{"error", kind.typ, kind.recoverable, kind.next, "content_analysis"}
	}
	if lower := strings.ToLower(text); slices.ContainsFunc(partialWords, func(w string) bool { return strings.Contains(lower, w) }) {
		return verdict{"partial_success", "", true, "rewrite_query", "content_analysis"}
	}
	return verdict{"success", "", true, "continue", "content_analysis"}
}

// reportedError returns the member error of a result in JSON; "" when it has none.
func reportedError(text string) string {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || !gjson.Valid(text) {
		return ""
	}
	switch e := gjson.Get(text, "error"); e.Type {
	case gjson.String:
		if slices.Contains(noError, strings.ToLower(strings.TrimSpace(e.Str))) {
			return ""
		}
		return e.Str
	case gjson.Null, gjson.False:
		return ""
	case gjson.Number:
		if e.Num == 0 {
			return ""
		}
		return e.Raw
	default:
		if e.Raw == "{}" || e.Raw == "[]" {
			return ""
		}
		return e.Raw
	}
}

// pagePhrases are titles of pages by which web servers report errors.
var pagePhrases = map[string]string{
	"unauthorized": "auth", "proxy authentication required": "auth", "forbidden": "permission", "access denied": "permission", "permission denied": "permission",
	"not found": "not_found", "too many requests": "rate_limited", "internal server error": "internal", "not implemented": "internal", "bad gateway": "transient",
	"service unavailable": "transient", "service temporarily unavailable": "transient", "gateway timeout": "transient",
}

var (
	pageWords  = regexp.MustCompile(`[0-9a-z]+`)
	pageFiller = regexp.MustCompile(`^(?:[45]\d\d|http|error|page|the|file|or|directory|url|resource)$`)
)

// errorPage returns the kind of error that a fetched page reports by its title, of which nothing else may be left; nil: none.
func errorPage(tool, text string) *errorKind {
	if tool != "web_fetch" {
		return nil
	}
	title, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	words := pageWords.FindAllString(strings.ToLower(title), -1)
	for len(words) > 0 && pageFiller.MatchString(words[0]) {
		words = words[1:]
	}
	typ := pagePhrases[strings.Join(words, " ")]
	for i := range errorKinds {
		if errorKinds[i].typ == typ {
			return &errorKinds[i]
		}
	}
	return nil
}
