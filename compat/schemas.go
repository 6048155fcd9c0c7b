package compat

import "slices"

// The schemas of request bodies. The order of members and enums is visible in error texts.

func objectOf(props ...Prop) *Schema {
	return &Schema{Types: []string{"object"}, Props: props}
}

func named(name string, s *Schema) *Schema {
	s.Name = name
	return s
}

func (s *Schema) require(names ...string) *Schema {
	s.Required = names
	return s
}

func (s *Schema) doc(text string) *Schema {
	c := *s
	c.Doc = text
	return &c
}

// only refuses members that the schema does not name: to ignore a condition would be to do more than was asked.
func (s *Schema) only() *Schema {
	c := *s
	c.Extra = typed("null")
	return &c
}

func typed(names ...string) *Schema { return &Schema{Types: names} }

func enum(values ...string) *Schema { return &Schema{Types: []string{"string"}, Enum: values} }

func listOf(items *Schema) *Schema { return &Schema{Types: []string{"array"}, Items: items} }

func anyOf(list ...*Schema) *Schema { return &Schema{AnyOf: list} }

func between(lo, hi int64, def string) *Schema {
	s := &Schema{Types: []string{"integer"}, Min: &lo, Default: def}
	if hi > 0 {
		s.Max = &hi
	}
	return s
}

func withDefault(s *Schema, def string) *Schema {
	s.Default = def
	return s
}

var (
	aText    = typed("string")
	aBool    = typed("boolean")
	anObject = typed("object")
	aNumber  = typed("number")
	aNull    = typed("null")
	anID     = &Schema{Types: []string{"string"}, Format: "uuid"}
	anything = &Schema{}

	limit  = between(1, 1000, "10")
	offset = between(0, 0, "0")
	order  = enum("asc", "desc")

	// CheckpointConfig identifies a checkpoint.
	CheckpointConfig = named("CheckpointConfig", objectOf(
		Prop{"thread_id", aText},
		Prop{"checkpoint_ns", aText.doc("Namespace of a subgraph; empty is the root.")},
		Prop{"checkpoint_id", aText},
		Prop{"checkpoint_map", anObject},
	))

	sendSchema = named("Send", objectOf(
		Prop{"node", aText},
		Prop{"input", typed("array", "boolean", "null", "number", "object", "string")},
	).require("node", "input"))

	commandSchema = named("Command", objectOf(
		Prop{"update", typed("array", "null", "object")},
		Prop{"resume", anything},
		Prop{"goto", anyOf(sendSchema, listOf(anyOf(sendSchema, aText)), aText, aNull)},
	))

	configSchema = named("Config", objectOf(
		Prop{"tags", listOf(aText)},
		Prop{"recursion_limit", typed("integer")},
		Prop{"configurable", anObject},
	))

	streamModes  = enum("values", "messages", "messages-tuple", "tasks", "checkpoints", "updates", "events", "debug", "custom")
	streamMode   = withDefault(anyOf(listOf(streamModes), streamModes), `["values"]`)
	breakpoints  = anyOf(enum("*"), listOf(aText))
	webhook      = &Schema{Types: []string{"string"}, MinLen: 1, Format: "uri-reference"}
	durability   = withDefault(enum("sync", "async", "exit"), `"async"`)
	strategies   = withDefault(enum("reject", "rollback", "interrupt", "enqueue"), `"enqueue"`)
	assistantRef = anyOf(anID, aText)
	onDisconnect = withDefault(enum("cancel", "continue"), `"continue"`)
	onCompletion = withDefault(enum("delete", "keep"), `"delete"`)
	ttlSchema    = objectOf(
		Prop{"strategy", enum("delete", "keep_latest")},
		Prop{"ttl", aNumber.doc("Minutes.")},
	)
	stateUpdates = named("ThreadSuperstepUpdate", objectOf(
		Prop{"values", anyOf(listOf(anything), anObject, aNull)},
		Prop{"command", anyOf(commandSchema, aNull)},
		Prop{"as_node", aText},
	).require("as_node"))

	assistantColumns = []string{"assistant_id", "graph_id", "name", "description", "config", "context", "created_at", "updated_at", "metadata", "version"}
	threadColumns    = []string{"thread_id", "created_at", "updated_at", "state_updated_at", "metadata", "config", "status", "values", "interrupts"}
	cronColumns      = []string{"cron_id", "assistant_id", "thread_id", "on_run_completed", "end_time", "schedule", "timezone", "created_at", "updated_at", "user_id", "payload", "next_run_date", "metadata", "enabled"}
	runColumns       = []string{"run_id", "thread_id", "assistant_id", "metadata", "status", "kwargs", "multitask_strategy", "created_at", "updated_at", "langsmith_session_name"}
)

// Request bodies of assistants.
var (
	AssistantCreate = named("AssistantCreate", objectOf(
		Prop{"assistant_id", anID},
		Prop{"graph_id", aText},
		Prop{"config", configSchema},
		Prop{"context", anObject},
		Prop{"metadata", anObject},
		Prop{"if_exists", withDefault(enum("raise", "do_nothing"), `"raise"`)},
		Prop{"name", aText},
		Prop{"description", typed("null", "string")},
	).require("graph_id"))

	AssistantPatch = named("AssistantPatch", objectOf(
		Prop{"graph_id", aText},
		Prop{"config", configSchema},
		Prop{"context", anObject},
		Prop{"metadata", anObject},
		Prop{"name", aText},
		Prop{"description", aText},
	))

	AssistantSearch = named("AssistantSearchRequest", objectOf(
		Prop{"metadata", anObject},
		Prop{"graph_id", aText},
		Prop{"name", aText.doc("Part of the name, in any case.")},
		Prop{"limit", limit},
		Prop{"offset", offset},
		Prop{"sort_by", enum("assistant_id", "created_at", "updated_at", "name", "graph_id")},
		Prop{"sort_order", order},
		Prop{"select", listOf(enum(assistantColumns...))},
	))

	AssistantCount = named("AssistantCountRequest", objectOf(
		Prop{"metadata", anObject},
		Prop{"graph_id", aText},
		Prop{"name", aText},
	))

	AssistantVersions = named("AssistantVersionsSearchRequest", objectOf(
		Prop{"metadata", anObject},
		Prop{"limit", limit},
		Prop{"offset", offset},
	))

	AssistantVersionChange = named("AssistantVersionChange", objectOf(
		Prop{"version", typed("integer")},
	).require("version"))
)

// Request bodies of threads.
var (
	ThreadCreate = named("ThreadCreate", objectOf(
		Prop{"thread_id", anID},
		Prop{"metadata", anObject},
		Prop{"if_exists", withDefault(enum("raise", "do_nothing"), `"raise"`)},
		Prop{"ttl", ttlSchema},
		Prop{"supersteps", listOf(objectOf(Prop{"updates", listOf(stateUpdates)}).require("updates"))},
	))

	threadCondition = objectOf(
		Prop{"status", enum("idle", "busy", "interrupted", "error")},
		Prop{"metadata", anObject},
	).only().doc("What must hold of a thread when it is changed: one that changed since it was found is left as it is.")

	ThreadPatch = named("ThreadPatch", objectOf(
		Prop{"metadata", anObject},
		Prop{"ttl", ttlSchema},
		Prop{"where", threadCondition},
	))

	ThreadSearch = named("ThreadSearchRequest", objectOf(
		Prop{"ids", listOf(anID)},
		Prop{"metadata", anObject},
		Prop{"values", anObject},
		Prop{"status", enum("idle", "busy", "interrupted", "error")},
		Prop{"limit", limit},
		Prop{"offset", offset},
		Prop{"sort_by", enum("thread_id", "status", "created_at", "updated_at", "state_updated_at")},
		Prop{"sort_order", order},
		Prop{"select", listOf(enum(threadColumns...))},
		Prop{"extract", (&Schema{Types: []string{"object"}, Extra: aText, MaxProps: 10}).doc(
			"Aliases of paths such as values.items[-1] below values, metadata, config or interrupts.")},
	))

	ThreadCount = named("ThreadCountRequest", objectOf(
		Prop{"metadata", anObject},
		Prop{"values", anObject},
		Prop{"status", enum("idle", "busy", "interrupted", "error")},
	))

	ThreadPrune = named("ThreadPruneRequest", objectOf(
		Prop{"thread_ids", listOf(anID)},
		Prop{"strategy", withDefault(enum("delete", "keep_latest"), `"delete"`)},
		Prop{"where", threadCondition},
	).require("thread_ids"))

	ThreadFork = named("ThreadFork", objectOf(
		Prop{"source_thread_id", anID},
		Prop{"event_number", between(1, 0, "").doc("seq of the last event that the fork has of its source.")},
	).require("source_thread_id", "event_number"))

	MessageSend = named("MessageSend", objectOf(
		Prop{"thread_id", anID},
		Prop{"message", anyOf(aText, anObject).doc("A text, or a message of a person.")},
		Prop{"assistant_id", assistantRef.doc("Answers it; by default the assistant of the last run of the thread.")},
		Prop{"config", configSchema},
		Prop{"context", anObject},
		Prop{"metadata", anObject},
	).require("thread_id", "message"))

	ThreadStateUpdate = named("ThreadStateUpdate", objectOf(
		Prop{"values", anyOf(listOf(anything), anObject, aNull)},
		Prop{"checkpoint", CheckpointConfig},
		Prop{"checkpoint_id", typed("null", "string")},
		Prop{"as_node", aText},
	))

	ThreadStateSearch = named("ThreadStateSearch", objectOf(
		Prop{"limit", between(1, 1000, "1")},
		Prop{"before", anyOf(CheckpointConfig, &Schema{Types: []string{"string"}, MinLen: 1}).doc("A checkpoint object, {\"configurable\": {\"checkpoint_id\": ...}}, or an id.")},
		Prop{"metadata", anObject},
		Prop{"checkpoint", CheckpointConfig},
	))

	ThreadStateAt = named("ThreadStateCheckpointRequest", objectOf(
		Prop{"checkpoint", CheckpointConfig},
		Prop{"subgraphs", aBool},
	).require("checkpoint"))
)

// Request bodies of event streaming. They describe what EventFilter and DecodeCommand read; nothing is checked by them.
var (
	EventStream = named("EventStreamRequest", objectOf(
		Prop{"channels", (&Schema{Types: []string{"array"}, Items: aText, MinItems: 1}).doc("values, updates, messages, tools, lifecycle, input, tasks, custom")},
		Prop{"namespaces", listOf(listOf(aText))},
		Prop{"depth", typed("integer")},
		Prop{"since", typed("integer").doc("Events up to this seq are not sent.")},
	).require("channels"))
	ProtocolCommand = named("ProtocolCommand", objectOf(
		Prop{"id", typed("integer")},
		Prop{"method", aText.doc("run.start or input.respond")},
		Prop{"params", anObject},
	).require("id", "method"))
)

// Request bodies of runs.
var (
	runProps = []Prop{
		{"assistant_id", assistantRef},
		{"input", anything},
		{"command", anyOf(commandSchema, aNull)},
		{"metadata", anObject},
		{"config", configSchema},
		{"context", anObject},
		{"webhook", webhook},
		{"interrupt_before", breakpoints},
		{"interrupt_after", breakpoints},
		{"stream_mode", streamMode},
		{"stream_subgraphs", aBool},
		{"stream_resumable", aBool},
		{"feedback_keys", listOf(aText)},
		{"after_seconds", aNumber},
		{"checkpoint_during", aBool},
		{"durability", durability},
	}

	RunStateful = refd(named("RunCreateStateful", objectOf(append([]Prop{
		{"checkpoint", CheckpointConfig},
		{"checkpoint_id", typed("null", "string")},
		{"multitask_strategy", strategies},
		{"if_not_exists", withDefault(enum("create", "reject"), `"reject"`)},
	}, runProps...)...).require("assistant_id")))

	RunStateless = refd(named("RunCreateStateless", objectOf(append([]Prop{
		{"on_completion", onCompletion},
	}, statelessProps()...)...).require("assistant_id")))

	// Runs whose client waits have a setting for when the client leaves.
	RunStatefulStream  = named("RunCreateStreamingStateful", &Schema{AllOf: []*Schema{RunStateful, objectOf(Prop{"on_disconnect", onDisconnect})}})
	RunStatelessStream = named("RunCreateStreamingStateless", &Schema{AllOf: []*Schema{RunStateless, objectOf(Prop{"on_disconnect", onDisconnect})}})

	RunBatch = named("RunBatchCreate", &Schema{Types: []string{"array"}, Items: RunStateless, MinItems: 1})

	RunsCancel = named("RunsCancel", &Schema{
		Types: []string{"object"},
		Props: []Prop{
			{"status", enum("pending", "running", "all")},
			{"thread_id", anID},
			{"run_ids", listOf(anID)},
		},
		OneOf: []*Schema{{Required: []string{"status"}}, {Required: []string{"thread_id", "run_ids"}}},
	})

	RunsCancelSome = named("RunsCancelSome", objectOf(
		Prop{"status", enum("pending", "running", "all").doc("By default all.")},
		Prop{"graph_id", aText},
		Prop{"until", anID.doc("The until of a count: runs that are created later continue.")},
		Prop{"after", aText.doc("The next of the call before.")},
	))
)

// statelessProps are runProps with breakpoints that may be null.
func statelessProps() []Prop {
	props := slices.Clone(runProps)
	for i := range props {
		if props[i].Schema == breakpoints {
			props[i].Schema = anyOf(enum("*"), listOf(aText), aNull)
		}
	}
	return props
}

// cronPatchProps are cronProps with an end time that may be null, which clears it.
func cronPatchProps() []Prop {
	props := slices.Clone(cronProps)
	for i := range props {
		if props[i].Name == "end_time" {
			props[i].Schema = &Schema{Types: []string{"null", "string"}, Format: "date-time"}
		}
	}
	return props
}

func refd(s *Schema) *Schema {
	s.Ref = true
	return s
}

// plain returns the schema without its place in components, for bodies whose errors name it only by its keywords.
func (s *Schema) plain() *Schema {
	c := *s
	c.Ref = false
	return &c
}

// Request bodies of crons.
var (
	cronProps = []Prop{
		{"schedule", aText.doc("Five fields: minute, hour, day of month, month, day of week; a sixth is seconds. Or @hourly, @daily, @weekly, @monthly, @yearly.")},
		{"timezone", aText.doc("IANA name; UTC when absent.")},
		{"end_time", &Schema{Types: []string{"string"}, Format: "date-time"}},
		{"assistant_id", assistantRef},
		{"input", anyOf(listOf(anObject), anObject)},
		{"metadata", anObject},
		{"config", configSchema},
		{"context", anObject},
		{"webhook", webhook},
		{"interrupt_before", breakpoints},
		{"interrupt_after", breakpoints},
		{"on_run_completed", enum("delete", "keep")},
		{"multitask_strategy", strategies},
		{"enabled", aBool},
		{"stream_mode", streamMode},
		{"stream_subgraphs", aBool},
		{"stream_resumable", aBool},
		{"durability", durability},
	}

	CronCreate = named("CronCreate", objectOf(cronProps...).require("assistant_id", "schedule"))
	CronPatch  = named("CronPatch", objectOf(cronPatchProps()...))

	CronSearch = named("CronSearch", objectOf(
		Prop{"assistant_id", anID},
		Prop{"thread_id", anID},
		Prop{"enabled", aBool},
		Prop{"metadata", anObject},
		Prop{"limit", limit},
		Prop{"offset", offset},
		Prop{"sort_by", enum("cron_id", "assistant_id", "thread_id", "next_run_date", "end_time", "created_at", "updated_at")},
		Prop{"sort_order", order},
		Prop{"select", listOf(enum(cronColumns...))},
	))

	CronCount = named("CronCountRequest", objectOf(
		Prop{"assistant_id", anID},
		Prop{"thread_id", anID},
		Prop{"enabled", aBool},
		Prop{"metadata", anObject},
	))
)

// Request bodies of the store.
var (
	StorePut = named("StorePutRequest", objectOf(
		Prop{"namespace", listOf(aText)},
		Prop{"key", aText},
		Prop{"value", anObject},
		Prop{"index", &Schema{OneOf: []*Schema{{Types: []string{"boolean"}, Enum: []string{"false"}}, listOf(aText), aNull}}},
		Prop{"ttl", typed("null", "number").doc("Minutes.")},
	).require("namespace", "key", "value"))

	StoreDelete = named("StoreDeleteRequest", objectOf(
		Prop{"namespace", listOf(aText)},
		Prop{"key", aText},
	).require("key"))

	StoreSearch = named("StoreSearchRequest", objectOf(
		Prop{"namespace_prefix", &Schema{Types: []string{"array", "null"}, Items: aText}},
		Prop{"filter", typed("null", "object").doc("Values of fields, or {\"$op\": value} with $eq $ne $gt $gte $lt $lte.")},
		Prop{"limit", withDefault(typed("integer"), "10")},
		Prop{"offset", withDefault(typed("integer"), "0")},
		Prop{"query", typed("null", "string")},
		Prop{"refresh_ttl", typed("boolean", "null")},
	))

	StoreNamespaces = named("StoreListNamespacesRequest", objectOf(
		Prop{"prefix", listOf(aText)},
		Prop{"suffix", listOf(aText)},
		Prop{"max_depth", typed("integer")},
		Prop{"limit", withDefault(typed("integer"), "100")},
		Prop{"offset", withDefault(typed("integer"), "0")},
	))
)

// Schemas are the named schemas of requests, for the OpenAPI description.
var Schemas = []*Schema{
	AssistantCreate, AssistantPatch, AssistantSearch, AssistantCount, AssistantVersions, AssistantVersionChange,
	ThreadCreate, ThreadPatch, ThreadSearch, ThreadCount, ThreadPrune, ThreadFork, MessageSend, ThreadStateUpdate, ThreadStateSearch, ThreadStateAt, stateUpdates,
	CheckpointConfig, configSchema, commandSchema, sendSchema,
	RunStateful, RunStateless, RunStatefulStream, RunStatelessStream, RunBatch, RunsCancel, RunsCancelSome,
	CronCreate, CronPatch, CronSearch, CronCount,
	StorePut, StoreDelete, StoreSearch, StoreNamespaces,
	EventStream, ProtocolCommand, FeedbackGive,
}
