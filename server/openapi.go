package server

import (
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/idempotency"
	"understudy/internal/jsonobj"
)

// operation is the OpenAPI description of a route.
type operation struct {
	method, path, tag, summary string
	body                       *compat.Schema // nil: none
	answer                     string         // media type and shape; "" is JSON
	query                      []string       // name:type
}

const (
	sse   = "text/event-stream"
	empty = "204"

	eventStreaming = "Event streaming"
)

// page and pageOfTypes are the query parameters of routes that answer with event rows.
var (
	page        = []string{"limit:integer", "after_seq:integer", "before_seq:integer"}
	pageOfTypes = append(page[:3:3], "event_types:string")
)

// operations describe the API. A test compares their paths with the routes.
var operations = []operation{
	{"post", "/assistants", "Assistants", "Create an assistant", compat.AssistantCreate, "", nil},
	{"post", "/assistants/search", "Assistants", "Search assistants", compat.AssistantSearch, "", nil},
	{"post", "/assistants/count", "Assistants", "Count assistants", compat.AssistantCount, "", nil},
	{"get", "/assistants/{assistant_id}", "Assistants", "Get an assistant", nil, "", nil},
	{"patch", "/assistants/{assistant_id}", "Assistants", "Change an assistant, which makes a new version", compat.AssistantPatch, "", nil},
	{"delete", "/assistants/{assistant_id}", "Assistants", "Delete an assistant", nil, empty, []string{"delete_threads:boolean"}},
	{"get", "/assistants/{assistant_id}/graph", "Assistants", "Draw the graph: nodes and edges. Takes the name of a graph too", nil, "", []string{"xray:string"}},
	{"get", "/assistants/{assistant_id}/schemas", "Assistants", "Schemas of input, output, state, config and context", nil, "", nil},
	{"get", "/assistants/{assistant_id}/subgraphs", "Assistants", "Schemas of subgraphs", nil, "", []string{"recurse:boolean"}},
	{"get", "/assistants/{assistant_id}/subgraphs/{namespace}", "Assistants", "Schemas of the subgraph in a namespace", nil, "", []string{"recurse:boolean"}},
	{"post", "/assistants/{assistant_id}/versions", "Assistants", "List versions", compat.AssistantVersions, "", nil},
	{"post", "/assistants/{assistant_id}/latest", "Assistants", "Go back to a version", compat.AssistantVersionChange, "", nil},

	{"post", "/threads", "Threads", "Create a thread", compat.ThreadCreate, "", nil},
	{"post", "/threads/search", "Threads", "Search threads", compat.ThreadSearch, "", nil},
	{"post", "/threads/count", "Threads", "Count threads", compat.ThreadCount, "", nil},
	{"post", "/threads/prune", "Threads", "Delete threads, or all but their newest state", compat.ThreadPrune, "", nil},
	{"get", "/threads/{thread_id}", "Threads", "Get a thread", nil, "", []string{"include:string"}},
	{"patch", "/threads/{thread_id}", "Threads", "Change a thread. With Prefer: return=minimal the answer is empty", compat.ThreadPatch, "", nil},
	{"delete", "/threads/{thread_id}", "Threads", "Delete a thread", nil, empty, nil},
	{"post", "/threads/{thread_id}/copy", "Threads", "Copy a thread", nil, "", nil},
	{"get", "/threads/{thread_id}/storage", "Threads", "Bytes that the checkpoints of a thread take, as stored", nil, "", nil},
	{"get", "/threads/{thread_id}/stream", "Threads", "Follow all runs of a thread", nil, sse, []string{"stream_modes:string"}},
	{"get", "/threads/{thread_id}/state", "Threads", "Get the state of a thread", nil, "", []string{"subgraphs:boolean"}},
	{"post", "/threads/{thread_id}/state", "Threads", "Update the state of a thread", compat.ThreadStateUpdate, "", nil},
	{"get", "/threads/{thread_id}/state/{checkpoint_id}", "Threads", "Get the state at a checkpoint", nil, "", []string{"subgraphs:boolean"}},
	{"post", "/threads/{thread_id}/state/checkpoint", "Threads", "Get the state at a checkpoint, also of a subgraph", compat.ThreadStateAt, "", nil},
	{"get", "/threads/{thread_id}/history", "Threads", "Past states, newest first", nil, "", []string{"limit:integer", "before:string"}},
	{"post", "/threads/{thread_id}/history", "Threads", "Search past states, newest first", compat.ThreadStateSearch, "", nil},
	{"get", "/threads/{thread_id}/messages", "Threads", "The messages of a thread as a person saw them, summarized ones too, by ascending seq. A row with metadata.after_seq stands in the conversation directly behind the row of that seq, 0: at the beginning; others at the end of those before them", nil, "", page},
	{"get", "/threads/{thread_id}/events", "Threads", "All that happened on a thread", nil, "", pageOfTypes},

	{"get", "/understudy/graphs", "Assistants", "The graphs that this server has: {graphs}, a list of their IDs. Assistants of graphs that left langgraph.json stay, and cannot run", nil, "", nil},
	{"get", "/understudy/assistants/{assistant_id}/nodes", "Assistants", "Where the code of each node is: {nodes}, each with id as in the drawing, function, file and line. file is below the folder of langgraph.json, and empty for code of packages", nil, "", nil},
	{"get", "/understudy/threads/{thread_id}/tree", "Threads", "The checkpoints of a thread, newest first, without their values: checkpoint_id, parent_checkpoint_id, created_at, step, source and run_id of each", nil, "", []string{"limit:integer", "before:string"}},

	{"get", "/understudy/threads/search", "Threads", "Search the messages of all threads, or of one, for words: {results, next}, newest first. The last word also finds longer ones, unless a space follows. Each result has thread_id, run_id, seq, message_id, event_type, created_at and snippet, a list of {text, match}. next is the before of the next page; a page may be short", nil, "", []string{"text:string", "thread_id:string", "limit:integer", "before:string"}},
	{"get", "/understudy/threads/{thread_id}/branches", "Threads", "What a thread is a fork of and what are forks of it: {thread_id, ancestors, branches, next}. Each has thread_id, event_number, checkpoint_id and created_at of the fork. The source of the thread is the last ancestor, and may have been deleted. next is the after of the next page; a page may be short", nil, "", []string{"limit:integer", "after:string"}},
	{"get", "/understudy/threads/{thread_id}/messages/{message_id}", "Threads", "Which checkpoint saved a message: {thread_id, message_id, seq, event_number, run_id, checkpoint_id, parent_checkpoint_id, created_at}. seq is the place of the message, event_number the event with its content, as fork-thread takes it", nil, "", nil},
	{"get", "/understudy/timeline", "Threads", "What happened on all threads, newest first: {events, next}. Each has thread_id, seq, event, run_id and created_at. event is started, completed, interrupted, failed, cancelled, retried, rolled_back, forked, condensed or removed. next is the before of the next page; a page may be short", nil, "", []string{"limit:integer", "before:string"}},
	{"get", "/understudy/heads", "Threads", "Where each thread is, by its last event, newest first: {heads, next}. Each has thread_id, seq, message_seq, last_event, run_id and updated_at: the last event and the last message, what happened to the last run, and when. next is the before of the next page; a page may be short", nil, "", []string{"limit:integer", "before:string"}},
	{"get", "/understudy/changes", "Threads", "Follow which threads and runs are created, change or are deleted: events changes with {threads, runs}, lists of IDs, or {all: true} when so many changed that they are not named. Events are at least 250 ms apart; without any, a heartbeat comes every second, or as often as the header X-Understudy-Heartbeat says in milliseconds", nil, sse, nil},
	{"get", "/understudy/runs", "Runs", "The runs of all threads, newest first, without their arguments: {runs, next}. next is the before of the next page; a page may be short. waits_for of a pending run is time, thread or job; server and lease_until say who executes a running one", nil, "", []string{"limit:integer", "before:string", "status:string", "graph_id:string", "cron_id:string"}},
	{"get", "/understudy/runs/count", "Runs", "How many runs of all threads have not ended, and would be cancelled by POST /understudy/runs/cancel: {count, more, until}. more: only 100,000 of each status were looked at, and there are more. status is pending, running or all, the default; until keeps out runs that are created later", nil, "", []string{"status:string", "graph_id:string"}},
	{"post", "/understudy/runs/cancel", "Runs", "Cancel the runs of all threads that a filter selects: {cancelled, next}. A call takes those of 50 threads at most; next is the after of the next call with the same filter, null at the end. Runs that have ended meanwhile are not touched, and those created after until, or after the first call, continue", compat.RunsCancelSome, "", []string{"action:string"}},
	{"get", "/understudy/runs/{run_id}/spans", "Runs", "The spans of a run in the order of their begins, also while it runs: queue, attempts, nodes, models, tools and saves. next is the after of the next page. content=true adds inputs and outputs, id selects one span, node those of a node, with its id in the drawing of the graph", nil, "", []string{"limit:integer", "after:string", "id:string", "node:string", "content:boolean"}},
	{"get", "/understudy/runs/{run_id}/otlp", "Runs", "The spans of a run as OTLP in JSON, as collectors of OpenTelemetry take them: with gen_ai attributes, below one span for the run. Spans that run end now. content=true adds inputs and outputs", nil, "", []string{"content:boolean"}},
	{"post", "/commands/fork-thread", "Threads", "Make a thread that begins with the conversation of another one up to an event: {thread_id, source_thread_id, event_number, checkpoint_id, created_at}", compat.ThreadFork, "", nil},
	{"post", "/commands/send-message", "Runs", "Send a message to a thread: {thread_id, run_id, message_id, status}. The run that answers it waits for the current one", compat.MessageSend, "", nil},
	{"get", "/understudy/servers", "System", "The servers of the database that have reported themselves in the last ten minutes: id, version, address, host, pid, mode, started_at, heartbeat_at, jobs, running, workers, memory_bytes, worker_memory_bytes, blocked (how often code of graphs blocked an event loop) and blocked_at, problems (graphs that do not import, and what the last reload failed for: graph, at, error, reload) and draining of each. With authentication for administrators", nil, "", nil},
	{"get", "/understudy/logs", "System", "The last lines of the logs of all servers, oldest first: {lines}, each with server, seq, time, level, message and attributes; what looks like a credential is hidden. requests=false leaves out those of requests. With authentication for administrators", nil, "", []string{"limit:integer", "level:string", "text:string", "server:string", "requests:boolean"}},
	{"get", "/understudy/logs/stream", "System", "The same as events logs, followed by the lines as they are written", nil, sse, []string{"limit:integer", "level:string", "text:string", "server:string", "requests:boolean"}},
	{"post", "/understudy/doctor", "System", "Check the server that answers, as understudy doctor does: {findings}, each with check, verdict (ok, warning or problem) and text, and often what to do about it. It may take seconds; one runs at a time. With authentication for administrators", nil, "", nil},
	{"get", "/understudy/usage", "Runs", "What runs used, of everyone, or with authentication of the caller: {since, until, total, days, graphs, assistants, models, callers}. Each has runs, errors, llm_calls, input_tokens, output_tokens and total_tokens, and p50_ms and p95_ms from the creation of a run to its end, within 19 %, 0 where that is not known. user selects the runs of one identity: any, for who reaches all threads. Days are in UTC. It counts runs that have ended and leave a row", nil, "", []string{"days:integer", "until:string", "user:string"}},
	{"get", "/threads/{thread_id}/runs", "Runs", "List runs, newest first", nil, "", []string{"limit:integer", "offset:integer", "status:string", "select:array"}},
	{"post", "/threads/{thread_id}/runs", "Runs", "Create a run in the background", compat.RunStateful, "", nil},
	{"post", "/threads/{thread_id}/runs/stream", "Runs", "Create a run and stream its events", compat.RunStatefulStream, sse, nil},
	{"post", "/threads/{thread_id}/runs/wait", "Runs", "Create a run and wait for its result", compat.RunStatefulStream, "", nil},
	{"get", "/threads/{thread_id}/runs/{run_id}", "Runs", "Get a run", nil, "", nil},
	{"delete", "/threads/{thread_id}/runs/{run_id}", "Runs", "Delete a run", nil, empty, nil},
	{"get", "/threads/{thread_id}/runs/{run_id}/join", "Runs", "Wait for the result of a run", nil, "", []string{"cancel_on_disconnect:boolean"}},
	{"get", "/threads/{thread_id}/runs/{run_id}/stream", "Runs", "Join the stream of a run", nil, sse, []string{"stream_mode:string", "cancel_on_disconnect:boolean"}},
	{"get", "/threads/{thread_id}/runs/{run_id}/messages", "Runs", "The messages of a run, by ascending seq. metadata.after_seq is as in the messages of the thread", nil, "", page},
	{"get", "/threads/{thread_id}/runs/{run_id}/events", "Runs", "All that happened in a run", nil, "", pageOfTypes},
	{"get", "/threads/{thread_id}/runs/{run_id}/feedback", "Runs", "What users think of a run, oldest first: rating is 1 or -1, scores has what was given under each of its feedback_keys. A page has up to 100", nil, "", []string{"limit:integer", "offset:integer"}},
	{"post", "/feedback/tokens/{token}", "Runs", "Give feedback at an address that a run with feedback_keys had at its end, as event feedback or as __feedback__ of its result. It needs no credentials, and is valid for three hours", compat.FeedbackGive, "", nil},
	{"post", "/threads/{thread_id}/runs/{run_id}/cancel", "Runs", "Cancel a run", nil, "", []string{"wait:boolean", "action:string"}},

	{"post", "/threads/{thread_id}/stream/events", eventStreaming, "Follow all runs of a thread as events of channels, from its first run on; also before the thread exists", compat.EventStream, sse, nil},
	{"post", "/threads/{thread_id}/commands", eventStreaming, "Start a run (run.start), or answer interrupts (input.respond). Errors of commands are answers too", compat.ProtocolCommand, "", nil},

	{"post", "/runs", "Stateless runs", "Create a run in the background", compat.RunStateless, "", nil},
	{"post", "/runs/stream", "Stateless runs", "Create a run and stream its events", compat.RunStatelessStream, sse, nil},
	{"post", "/runs/wait", "Stateless runs", "Create a run and wait for its result", compat.RunStatelessStream, "", nil},
	{"post", "/runs/batch", "Stateless runs", "Create several runs", compat.RunBatch, "", nil},
	{"post", "/runs/cancel", "Stateless runs", "Cancel several runs", compat.RunsCancel, empty, []string{"action:string"}},
	{"get", "/runs/{run_id}/stream", "Stateless runs", "Join the stream of a run", nil, sse, []string{"stream_mode:string"}},

	{"post", "/runs/crons", "Crons", "Create a cron", compat.CronCreate, "", nil},
	{"post", "/threads/{thread_id}/runs/crons", "Crons", "Create a cron on a thread", compat.CronCreate, "", nil},
	{"post", "/runs/crons/search", "Crons", "Search crons", compat.CronSearch, "", nil},
	{"post", "/runs/crons/count", "Crons", "Count crons", compat.CronCount, "", nil},
	{"get", "/runs/crons/{cron_id}", "Crons", "Get a cron", nil, "", nil},
	{"get", "/understudy/crons/{cron_id}/times", "Crons", "The next times of a cron: {timezone, times}, each with the offset of its zone, soonest first. They are those of its schedule also while it is paused, and end with its end_time", nil, "", []string{"limit:integer"}},
	{"patch", "/runs/crons/{cron_id}", "Crons", "Change a cron", compat.CronPatch, "", nil},
	{"delete", "/runs/crons/{cron_id}", "Crons", "Delete a cron", nil, empty, nil},

	{"put", "/store/items", "Store", "Put an item", compat.StorePut, empty, nil},
	{"get", "/store/items", "Store", "Get an item", nil, "", []string{"namespace:string", "key:string", "refresh_ttl:boolean"}},
	{"delete", "/store/items", "Store", "Delete an item", compat.StoreDelete, empty, nil},
	{"post", "/store/items/search", "Store", "Search items", compat.StoreSearch, "", nil},
	{"post", "/store/namespaces", "Store", "List namespaces", compat.StoreNamespaces, "", nil},

	{"get", "/", "System", "Health, for probes that know no path", nil, "", nil},
	{"get", "/ok", "System", "Health", nil, "", []string{"check_db:integer"}},
	{"get", "/livez", "System", "Whether the process answers", nil, "", nil},
	{"get", "/readyz", "System", "Whether requests should be sent here", nil, "", nil},
	{"get", "/info", "System", "Version and abilities", nil, "", nil},
	{"get", "/metrics", "System", "Metrics, as Prometheus reads them or as JSON", nil, "text/plain", []string{"format:string"}},
	{"get", "/docs", "System", "The documentation, and this description as pages in which requests can be tried", nil, "text/html", nil},
	{"get", "/docs/{page}", "System", "A page of the documentation, or a file that it uses", nil, "text/html", nil},
	{"get", "/openapi.json", "System", "This description", nil, "", nil},
}

// answers are the schemas of JSON answers. Other operations answer with JSON from a graph or a service.
var answers = map[string]*compat.Schema{
	"post /assistants":                               compat.AssistantAnswer,
	"post /assistants/search":                        compat.ListOf(compat.AssistantAnswer),
	"post /assistants/count":                         compat.CountAnswer,
	"get /assistants/{assistant_id}":                 compat.AssistantAnswer,
	"patch /assistants/{assistant_id}":               compat.AssistantAnswer,
	"post /assistants/{assistant_id}/versions":       compat.ListOf(compat.AssistantAnswer),
	"post /assistants/{assistant_id}/latest":         compat.AssistantAnswer,
	"post /threads":                                  compat.ThreadAnswer,
	"post /threads/search":                           compat.ListOf(compat.ThreadAnswer),
	"post /threads/count":                            compat.CountAnswer,
	"post /threads/prune":                            compat.ObjectWith("pruned_count", compat.CountAnswer),
	"get /threads/{thread_id}":                       compat.ThreadAnswer,
	"patch /threads/{thread_id}":                     compat.ThreadAnswer,
	"post /threads/{thread_id}/copy":                 compat.ThreadAnswer,
	"get /threads/{thread_id}/storage":               compat.UsageAnswer,
	"get /threads/{thread_id}/state":                 compat.StateAnswer,
	"post /threads/{thread_id}/state":                compat.UpdatedAnswer,
	"get /threads/{thread_id}/state/{checkpoint_id}": compat.StateAnswer,
	"post /threads/{thread_id}/state/checkpoint":     compat.StateAnswer,
	"get /threads/{thread_id}/history":               compat.ListOf(compat.StateAnswer),
	"post /threads/{thread_id}/history":              compat.ListOf(compat.StateAnswer),
	"get /threads/{thread_id}/runs":                  compat.ListOf(compat.RunAnswer),
	"post /threads/{thread_id}/runs":                 compat.RunAnswer,
	"get /threads/{thread_id}/runs/{run_id}":         compat.RunAnswer,
	"post /runs":                                     compat.RunAnswer,
	"post /runs/batch":                               compat.ListOf(compat.RunAnswer),
	"post /runs/crons":                               compat.CronAnswer,
	"post /threads/{thread_id}/runs/crons":           compat.CronAnswer,
	"post /runs/crons/search":                        compat.ListOf(compat.CronAnswer),
	"post /runs/crons/count":                         compat.CountAnswer,
	"get /runs/crons/{cron_id}":                      compat.CronAnswer,
	"patch /runs/crons/{cron_id}":                    compat.CronAnswer,
	"get /store/items":                               compat.ItemAnswer,
	"post /store/items/search":                       compat.ObjectWith("items", compat.ListOf(compat.ItemAnswer)),
}

// repeatable are the operations that read the header Idempotency-Key.
var repeatable = []string{"/threads", "/threads/{thread_id}/runs", "/threads/{thread_id}/runs/stream", "/threads/{thread_id}/runs/wait", "/threads/{thread_id}/commands", "/runs", "/runs/stream", "/runs/wait", "/runs/batch"}

// described is an operation whose body may be a form.
type described struct {
	operation
	bodyType string // media type of the body
	who      string // who may use it, where that is not the same for all operations
}

// served returns the operations whose routes exist.
func (s *Server) served() []described {
	var list []described
	for _, o := range operations {
		if s.known(s.opts.MountPrefix + o.path) {
			list = append(list, described{o, fiber.MIMEApplicationJSON, ""})
		}
	}
	if s.opts.DeerFlow != nil {
		list = append(list, gatewayOperations()...)
	}
	return list
}

// describe returns the OpenAPI description.
func (s *Server) describe() []byte {
	b := jsonobj.AppendText([]byte(`{"openapi":"3.1.0","info":{"title":"understudy","description":"The LangGraph Server API.","version":`), s.opts.Version)
	if b = append(b, '}'); s.opts.MountPrefix != "" {
		b = append(jsonobj.AppendText(append(b, `,"servers":[{"url":`...), s.opts.MountPrefix), `}]`...)
	}
	b = append(b, `,"paths":{`...)
	var order []string
	byPath := map[string][]described{}
	for _, o := range s.served() {
		if byPath[o.path] == nil {
			order = append(order, o.path)
		}
		byPath[o.path] = append(byPath[o.path], o)
	}
	for i, path := range order {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonobj.AppendText(b, path), `:{`...)
		for j, o := range byPath[path] {
			if j > 0 {
				b = append(b, ',')
			}
			b = o.append(b, s.exampleBody(o.method+" "+o.path))
		}
		b = append(b, '}')
	}
	b = append(b, `},"components":{"schemas":{"Error":{"type":"object","properties":{"detail":{"type":"string"}},"required":["detail"]}`...)
	for _, schema := range append(slices.Clone(compat.Schemas), compat.Answers...) {
		b = append(jsonobj.AppendText(append(b, ','), schema.Name), ':')
		b = schema.AppendJSON(b, true)
	}
	return append(b, `}}}`...)
}

// showsMessages reports whether answers may contain values of a thread, and so its messages.
func (o operation) showsMessages() bool {
	switch o.tag {
	case "Threads", "Runs", "Stateless runs":
		return o.answer != empty
	}
	return false
}

func (o described) append(b, body []byte) []byte {
	b = append(append(append(b, '"'), o.method...), `":{"tags":[`...)
	b = append(jsonobj.AppendText(b, o.tag), `],"summary":`...)
	b = jsonobj.AppendText(b, o.summary)
	if o.who != "" {
		b = jsonobj.AppendText(append(b, `,"description":`...), "Who may use it: "+o.who+".")
	}
	b = append(b, `,"parameters":[`...)
	first := true
	parameter := func(name, in, schema string) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(jsonobj.AppendText(append(b, `{"name":`...), name), `,"in":"`+in+`","required":`...)
		if in == "path" {
			b = append(b, "true"...)
		} else {
			b = append(b, "false"...)
		}
		b = append(b, `,"schema":`+schema+`}`...)
	}
	for _, segment := range strings.Split(o.path, "/") {
		if strings.HasPrefix(segment, "{") {
			parameter(strings.Trim(segment, "{}"), "path", `{"type":"string"}`)
		}
	}
	for _, q := range o.query {
		name, typ, _ := strings.Cut(q, ":")
		if typ == "array" {
			parameter(name, "query", `{"type":"array","items":{"type":"string"}}`)
		} else {
			parameter(name, "query", `{"type":"`+typ+`"}`)
		}
	}
	if o.showsMessages() {
		parameter("overlay", "query", `{"type":"boolean","description":"Show every message a person saw, those that were condensed too. The default is the server's setting."}`)
		parameter("markers", "query", `{"type":"string","enum":["attached","system","summary_marker","off"],"description":"How the place of a summary is marked."}`)
	}
	if o.method == "post" && slices.Contains(repeatable, o.path) {
		parameter(idempotency.Header, "header", `{"type":"string","minLength":1,"maxLength":255,"description":"A request with the same key and body creates nothing more for a day: it returns what the first one created."}`)
	}
	b = append(b, ']')
	if o.body != nil {
		b = append(b, `,"requestBody":{"required":true,"content":{"`+o.bodyType+`":{"schema":`...)
		b = appendExample(o.body.AppendJSON(b, false), body)
		b = append(b, `}}}`...)
	}
	b = append(b, `,"responses":{`...)
	switch o.answer {
	case empty:
		b = append(b, `"204":{"description":"Done"}`...)
	case "":
		b = append(b, `"200":{"description":"Done","content":{"application/json":{"schema":`...)
		if a := answers[o.method+" "+o.path]; a != nil {
			b = a.AppendJSON(b, false)
		} else {
			b = append(b, `{}`...)
		}
		b = append(appendExample(b, examples()[o.method+" "+o.path].Response), `}}}`...)
	default:
		b = append(b, `"200":{"description":"Done","content":{"`+o.answer+`":{"schema":{"type":"string"}`...)
		b = append(appendExample(b, examples()[o.method+" "+o.path].Response), `}}}`...)
	}
	return append(b, `,"default":{"description":"The request failed","content":{"application/json":{"schema":{"$ref":"#/components/schemas/Error"}}}}}}`...)
}

func appendExample(b []byte, example []byte) []byte {
	if len(example) == 0 {
		return b
	}
	return append(append(b, `,"example":`...), example...)
}
