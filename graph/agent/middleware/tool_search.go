package middleware

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

const (
	searchTool  = "tool_search"
	promotedKey = "promoted"
	maxFound    = 5 // tools of a search
	maxQuery    = 1000
)

// promoted are the deferred tools that a thread has found. They hold for the catalog that they were found in: a tool that changed since has to be found again.
type promoted struct {
	Catalog string   `json:"catalog_hash"`
	Names   []string `json:"names"`
}

func promote(have, more promoted) promoted {
	if have.Catalog != more.Catalog {
		return more
	}
	for _, name := range more.Names {
		if !slices.Contains(have.Names, name) {
			have.Names = append(slices.Clip(have.Names), name)
		}
	}
	return have
}

// ToolSearch holds the tools of servers back (agent.Tool.Remote): hundreds of schemas in each request cost more than they help. The model knows their names, and gets
// the tools whose schemas it has looked for with the tool tool_search. An agent without such tools does not have the search either.
func ToolSearch() agent.Middleware {
	return agent.Middleware{
		Name: "DeferredToolFilterMiddleware",
		Tools: []agent.Tool{{
			Name: searchTool,
			Description: "Finds tools of <available-deferred-tools>, and makes them callable: until then only their names are known. " +
				"`select:a,b` takes tools by name; `+word rest` those with word in their name, best match of rest first; anything else is a regular expression for names and descriptions.",
			Schema: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","description":"What to look for."}},"required":["query"]}`),
			Run: func(context.Context, message.ToolCall) (any, error) { // WrapToolCall answers it
				return nil, fmt.Errorf("%s needs its middleware", searchTool)
			},
		}},
		State: map[string]pregel.Channel{promotedKey: pregel.Reducer(promote)},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			c := catalogOf(r.Tools)
			found := c.found(r.State)
			r.Tools = slices.DeleteFunc(slices.Clone(r.Tools), func(t agent.Tool) bool {
				return t.Remote && !slices.Contains(found, t.Name) || t.Name == searchTool && len(c) == 0
			})
			if len(c) > 0 {
				names := make([]string, len(c))
				for i, t := range c {
					names[i] = t.Name
				}
				r.System = withSection(r.System, "<available-deferred-tools>\n"+strings.Join(names, "\n")+"\n</available-deferred-tools>")
			}
			return next(ctx, r)
		},
		WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
			if r.Call.Name != searchTool && (r.Tool == nil || !r.Tool.Remote) {
				return next(ctx, r)
			}
			c := catalogOf(r.Tools())
			if r.Call.Name == searchTool {
				return c.answer(r.Call), nil
			}
			if !slices.Contains(c.found(r.State), r.Call.Name) {
				m := message.Tool(fmt.Sprintf("Error: Tool '%s' is deferred and has not been promoted yet. Call tool_search first to expose and promote this tool's schema, then retry.", r.Call.Name), r.Call.ID).WithName(r.Call.Name)
				m.Status = message.StatusError
				return agent.ToolResult{Message: &m}, nil
			}
			return next(ctx, r)
		},
	}
}

// withSection returns instructions with a part more.
func withSection(system *message.Message, text string) *message.Message {
	if system != nil {
		text = system.Text() + "\n\n" + text
	}
	m := message.System(text)
	return &m
}

// catalog is the tools that are held back, by name.
type catalog []agent.Tool

func catalogOf(tools []agent.Tool) (c catalog) {
	for _, t := range tools {
		if t.Remote {
			c = append(c, t)
		}
	}
	slices.SortFunc(c, func(a, b agent.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

func (c catalog) hash() string {
	h := sha256.New()
	for _, t := range c {
		fmt.Fprintf(h, "%q %q %s\n", t.Name, t.Description, t.Schema)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// found returns the names that a thread has found in this catalog.
func (c catalog) found(state pregel.Values) []string {
	p, ok, _ := pregel.Get[promoted](state, promotedKey)
	if !ok || len(p.Names) == 0 || p.Catalog != c.hash() {
		return nil
	}
	return p.Names
}

// answer is the result of a search.
func (c catalog) answer(call message.ToolCall) agent.ToolResult {
	var args struct {
		Query string `json:"query"`
	}
	result := func(text, status string) message.Message {
		m := message.Tool(text, call.ID).WithName(call.Name)
		m.Status = status
		return m
	}
	if err := json.Unmarshal(call.Args, &args); err != nil || len(args.Query) > maxQuery {
		m := result(fmt.Sprintf("Error: tool_search needs a query of at most %d characters.", maxQuery), message.StatusError)
		return agent.ToolResult{Message: &m}
	}
	matched := c.search(args.Query)
	if len(matched) == 0 {
		m := result("No tools found matching: "+args.Query, "")
		return agent.ToolResult{Message: &m}
	}
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	var list []function
	var names []string
	for _, t := range matched {
		list, names = append(list, function{t.Name, t.Description, t.Schema}), append(names, t.Name)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(list); err != nil { // a schema that is no JSON: of the server
		m := result("Error: a schema of these tools is not JSON: "+strings.Join(names, ", "), message.StatusError)
		return agent.ToolResult{Message: &m}
	}
	m := result(strings.TrimSpace(text.String()), "")
	return agent.ToolResult{Updates: []any{&pregel.Command{Update: pregel.Values{promotedKey: promoted{c.hash(), names}, "messages": []message.Message{m}}}}}
}

// search returns at most maxFound tools, the best first.
func (c catalog) search(query string) (list []agent.Tool) {
	query = strings.TrimSpace(query)
	score := func(t agent.Tool) int { return 0 }
	switch names, exact := strings.CutPrefix(query, "select:"); {
	case query == "":
		return nil
	case exact:
		for name := range strings.SplitSeq(names, ",") {
			if at := slices.IndexFunc(c, func(t agent.Tool) bool { return t.Name == strings.TrimSpace(name) }); at >= 0 {
				list = append(list, c[at])
			}
		}
		return list[:min(len(list), maxFound)]
	case query[0] == '+':
		word, rest, _ := strings.Cut(strings.TrimSpace(query[1:]), " ")
		if word == "" {
			return nil
		}
		if rest = strings.TrimSpace(rest); rest != "" {
			re := pattern(rest)
			score = func(t agent.Tool) int { return len(re.FindAllStringIndex(t.Name+" "+t.Description, -1)) }
		}
		for _, t := range c {
			if strings.Contains(strings.ToLower(t.Name), strings.ToLower(word)) {
				list = append(list, t)
			}
		}
	default:
		re := pattern(query)
		score = func(t agent.Tool) int {
			if re.MatchString(t.Name) {
				return 2
			}
			return 1
		}
		for _, t := range c {
			if re.MatchString(t.Name + " " + t.Description) {
				list = append(list, t)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b agent.Tool) int { return score(b) - score(a) })
	return list[:min(len(list), maxFound)]
}

// pattern compiles a regular expression of a model, in which case does not count; one that is none is taken literally.
func pattern(text string) *regexp.Regexp {
	if re, err := regexp.Compile("(?i)" + text); err == nil {
		return re
	}
	return regexp.MustCompile("(?i)" + regexp.QuoteMeta(text))
}
