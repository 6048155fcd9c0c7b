//go:build unix

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/pregel"
	"understudy/internal/config"
)

// growing are JSON values of n elements.
var growing = []struct {
	name string
	make func(n int) string
}{
	{"keys", func(n int) string {
		return "{" + elements(n, func(i int) string { return fmt.Sprintf(`"key%d":%d`, i, i) }) + "}"
	}},
	{"keys of objects", func(n int) string {
		return "{" + elements(n/2, func(i int) string { return fmt.Sprintf(`"key%d":{"a":[%d]}`, i, i) }) + "}"
	}},
	{"numbers", func(n int) string { return "[" + elements(n, strconv.Itoa) + "]" }},
	{"texts", func(n int) string {
		return "[" + elements(n, func(i int) string { return fmt.Sprintf(`"t%d"`, i) }) + "]"
	}},
	{"objects", func(n int) string {
		return "[" + elements(n/2, func(i int) string { return fmt.Sprintf(`{"id":"i%d","a":"b"}`, i) }) + "]"
	}},
	{"ids", func(n int) string {
		return "[" + elements(n/4, func(i int) string { return fmt.Sprintf(`"01890000-0000-7000-8000-%012d"`, i) }) + "]"
	}},
	{"messages", func(n int) string {
		return "[" + elements(n/4, func(i int) string { return fmt.Sprintf(`{"type":"human","id":"m%d","content":"text"}`, i) }) + "]"
	}},
	{"a long text", func(n int) string { return `"` + strings.Repeat(`a\né\"<`, n) + `"` }},
	{"a long number", func(n int) string { return strings.Repeat("7", 5*n) }},
}

func elements(n int, element func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = element(i)
	}
	return strings.Join(all, ",")
}

// bases are the bodies that the places of a route are filled in, where an empty object is refused.
var bases = map[string]string{
	"POST /assistants":                           `{"graph_id":"g"}`,
	"POST /assistants/{assistant_id}/latest":     `{"version":1}`,
	"POST /threads/prune":                        `{"thread_ids":[]}`,
	"POST /threads/{thread_id}/state":            `{"values":{},"as_node":"a"}`,
	"POST /threads/{thread_id}/runs":             `{"assistant_id":"g","input":{}}`,
	"POST /threads/{thread_id}/runs/stream":      `{"assistant_id":"g","input":{}}`,
	"POST /threads/{thread_id}/runs/wait":        `{"assistant_id":"g","input":{}}`,
	"POST /runs":                                 `{"assistant_id":"g","input":{}}`,
	"POST /runs/stream":                          `{"assistant_id":"g","input":{}}`,
	"POST /runs/wait":                            `{"assistant_id":"g","input":{}}`,
	"POST /runs/cancel":                          `{"status":"all"}`,
	"POST /runs/crons":                           `{"assistant_id":"g","schedule":"0 0 1 1 *"}`,
	"POST /threads/{thread_id}/runs/crons":       `{"assistant_id":"g","schedule":"0 0 1 1 *"}`,
	"PUT /store/items":                           `{"namespace":["a"],"key":"k","value":{}}`,
	"DELETE /store/items":                        `{"namespace":["a"],"key":"k"}`,
	"POST /store/items/search":                   `{"namespace_prefix":["a"]}`,
	"POST /threads/{thread_id}/state/checkpoint": `{"checkpoint":{"checkpoint_ns":""}}`,
}

// nested are the places within a body that have a meaning of their own, deeper than its members.
var nested = []struct{ member, template string }{
	{"config", `{"configurable":GROWING}`},
	{"config", `{"metadata":GROWING}`},
	{"config", `{"tags":GROWING}`},
	{"command", `{"update":GROWING}`},
	{"command", `{"update":{"messages":GROWING}}`},
	{"command", `{"resume":GROWING}`},
	{"command", `{"goto":GROWING}`},
	{"command", `{"goto":{"node":"a","input":{"messages":GROWING}}}`},
	{"input", `{"messages":GROWING}`},
	{"input", `{"rest":GROWING}`},
	{"values", `{"messages":GROWING}`},
	{"values", `{"rest":GROWING}`},
	{"filter", `{"a":GROWING}`},
	{"supersteps", `[{"updates":[{"values":{"rest":GROWING},"as_node":"a"}]}]`},
	{"checkpoint", `{"checkpoint_id":"1","checkpoint_map":GROWING}`},
}

// reads are what a request is followed by.
var reads = []string{
	"/threads/{thread_id}", "/threads/{thread_id}/state", "/threads/{thread_id}/history", "/threads/{thread_id}/messages",
	"/threads/{thread_id}/events", "/threads/{thread_id}/runs", "/assistants/{assistant_id}", "/runs/crons/{cron_id}",
}

// growth is a request of which one part grows.
type growth struct {
	route string
	what  string
	body  func(n int) string
}

func (c growth) String() string { return c.route + ", " + c.what }

// growthsOf are the places that grow: members that the description of the API names, and those in nested, in each of the shapes.
func growthsOf(t *testing.T, description string) (all []growth) {
	t.Helper()
	gjson.Get(description, "paths").ForEach(func(path, methods gjson.Result) bool {
		methods.ForEach(func(method, operation gjson.Result) bool {
			route := strings.ToUpper(method.String()) + " " + path.String()
			schema := operation.Get(`requestBody.content.application/json.schema`)
			if !schema.Exists() {
				return true
			}
			if ref := schema.Get(`\$ref`).String(); ref != "" {
				schema = gjson.Get(description, strings.ReplaceAll(strings.TrimPrefix(ref, "#/"), "/", "."))
			}
			base := bases[route]
			if base == "" {
				base = "{}"
			}
			add := func(member, template string) {
				for _, shape := range growing {
					all = append(all, growth{route, member + " " + template + " of " + shape.name, func(n int) string {
						return withMember(t, base, member, strings.Replace(template, "GROWING", shape.make(n), 1))
					}})
				}
			}
			if schema.Get("type").String() == "array" { // runs/batch
				all = append(all, growth{route, "a list", func(n int) string {
					return "[" + elements(n/400, func(int) string { return `{"assistant_id":"g","input":{}}` }) + "]"
				}})
				return true
			}
			members := []string{"unknown"}
			schema.Get("properties").ForEach(func(name, _ gjson.Result) bool {
				members = append(members, name.String())
				return true
			})
			for _, member := range members {
				add(member, "GROWING")
				for _, n := range nested {
					if n.member == member {
						add(member, n.template)
					}
				}
			}
			all = append(all, growth{route, "members", func(n int) string {
				return strings.TrimSuffix(base, "}") + strings.Repeat(",", min(len(base)-2, 1)) + growing[0].make(n)[1:]
			}})
			return true
		})
		return true
	})
	return all
}

// withMember sets a member of an object.
func withMember(t *testing.T, object, member, value string) string {
	t.Helper()
	members := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal([]byte(object), &members))
	delete(members, member)
	rest, err := json.Marshal(members)
	require.NoError(t, err)
	return `{"` + member + `":` + value + strings.Repeat(",", min(len(members), 1)) + string(rest[1:])
}

// large is how many elements grow to twice as many. What is quadratic in the latter takes a second or more.
const large = 20_000

// enough is what a request may take that is not compared with a smaller one. With the race detector all is ten times slower.
const enough = 200 * time.Millisecond

// quadratic reports whether a request of twice the size takes more than three times as long, in each of three attempts.
func (c growth) quadratic(t *testing.T, url string) bool {
	t.Helper()
	for range 3 {
		twice := c.cost(t, url, 2*large)
		if twice < enough {
			return false
		}
		if once := c.cost(t, url, large); twice <= 3*once {
			return false
		}
	}
	return true
}

// cost is how long the process calculates for a request, the runs it makes and reads of what it saved included, which does not depend on what else the machine does.
func (c growth) cost(t *testing.T, url string, n int) time.Duration {
	t.Helper()
	assistant, _ := call(t, "POST", url+"/assistants", `{"graph_id":"g"}`)["assistant_id"].(string)
	thread, _ := call(t, "POST", url+"/threads", `{"metadata":{"graph_id":"g"}}`)["thread_id"].(string)
	cron, _ := call(t, "POST", url+"/runs/crons", `{"assistant_id":"g","schedule":"0 0 1 1 *","input":{}}`)["cron_id"].(string)
	fill := strings.NewReplacer("{assistant_id}", assistant, "{thread_id}", thread, "{cron_id}", cron, "{run_id}", thread)
	method, path, _ := strings.Cut(fill.Replace(c.route), " ")
	body := c.body(n)
	runtime.GC() // what was left by the request before
	before := used(t)
	status, answer := send(t, method, url+path, body)
	require.NotEqual(t, 0, status)
	require.Less(t, status, 500, "%s: %.300s", c, answer)
	for _, r := range append(gjson.Get(answer, "@this.#.run_id").Array(), gjson.Get(answer, "run_id")) {
		if r.Exists() && method == "POST" && strings.HasSuffix(path, "runs") {
			of := gjson.Get(answer, "thread_id").String()
			send(t, "GET", url+"/threads/"+of+"/runs/"+r.String()+"/join", "")
		}
	}
	for _, read := range reads { // what was saved
		status, answer := send(t, "GET", url+fill.Replace(read), "")
		require.Less(t, status, 500, "GET %s after %s: %.300s", read, c, answer)
	}
	cost := used(t) - before
	for _, made := range []string{"/threads/" + thread, "/runs/crons/" + cron, "/assistants/" + assistant} {
		send(t, "DELETE", url+made, "")
	}
	for list, id := range map[string]string{"/threads": "thread_id", "/runs/crons": "cron_id", "/assistants": "assistant_id"} {
		if c.route == "POST "+list || id == "cron_id" {
			if made := gjson.Get(answer, id).String(); made != "" {
				send(t, "DELETE", url+list+"/"+made, "")
			}
		}
	}
	return cost
}

// used is how long the process has calculated.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// No route takes more than linear time in what a request brings, wherever in its body it is, nor do reads of it: twice as much takes at most three times as long.
// The places are those that the description of the API names, so a new route is tested too: all with GROWTH=all, one with its name there, otherwise a random part of them.
func TestNoRouteIsQuadratic(t *testing.T) {
	g := pregel.NewStateGraph[pregel.Values](pregel.WithChannel("messages", pregel.Messages()), pregel.WithChannel("rest", pregel.LastValue()))
	g.AddNode("a", func(context.Context, pregel.Values) (any, error) { return nil, nil })
	g.AddSequence(pregel.START, "a", pregel.END)
	compiled, err := g.Compile(pregel.WithName("g"))
	require.NoError(t, err)
	settings, _, err := config.Load(config.Source{
		Mode: config.Dev, Flags: map[string]string{"port": "0", "data": t.TempDir()}, Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	url := runWith(t, Config{Settings: settings, Log: slog.New(slog.DiscardHandler)}, "g", compiled).url()

	_, description := send(t, "GET", url+"/openapi.json", "")
	cases := growthsOf(t, description)
	until := time.Now().Add(10 * time.Second)
	switch only := os.Getenv("GROWTH"); only {
	case "":
		rand.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	case "all":
		until = until.Add(time.Hour)
	default:
		cases = slices.DeleteFunc(cases, func(c growth) bool { return c.String() != only })
	}
	asked := 0
	for _, c := range cases {
		if time.Now().After(until) {
			break
		}
		asked++
		if c.quadratic(t, url) {
			t.Errorf("%s: twice as much takes more than three times as long (GROWTH=%q)", c, c.String())
		}
	}
	t.Logf("%d of %d requests", asked, len(cases))
}
