package compat

// Schemas of answers, for the OpenAPI description. Nothing is checked against them.

var (
	aTime      = &Schema{Types: []string{"string"}, Format: "date-time"}
	timeOrNull = &Schema{Types: []string{"null", "string"}, Format: "date-time"}
	orNull     = typed("null", "string")
	aWhole     = typed("integer")
	ofObjects  = listOf(anObject)
	amount     = objectOf(Prop{"count", aWhole}, Prop{"bytes", aWhole})
	checkpoint = anyOf(CheckpointConfig, aNull)

	AssistantAnswer = named("Assistant", objectOf(
		Prop{"assistant_id", anID}, Prop{"graph_id", aText}, Prop{"config", configSchema}, Prop{"context", anObject}, Prop{"metadata", anObject},
		Prop{"name", aText}, Prop{"created_at", aTime}, Prop{"updated_at", aTime}, Prop{"version", aWhole}, Prop{"description", orNull},
	))

	ThreadAnswer = named("Thread", objectOf(
		Prop{"thread_id", anID}, Prop{"created_at", aTime}, Prop{"updated_at", aTime}, Prop{"state_updated_at", aTime}, Prop{"metadata", anObject},
		Prop{"status", enum("idle", "busy", "interrupted", "error")}, Prop{"config", anObject}, Prop{"values", typed("null", "object")},
		Prop{"error", typed("null", "object").doc("{error, message} of the last run. Absent before the first run.")},
		Prop{"interrupts", anObject.doc("By task: [{id, value}]. Absent before the first run.")},
	))

	StateAnswer = named("ThreadState", objectOf(
		Prop{"values", anything}, Prop{"next", listOf(aText)},
		Prop{"tasks", listOf(objectOf(
			Prop{"id", aText}, Prop{"name", aText}, Prop{"path", listOf(anything)}, Prop{"error", orNull}, Prop{"interrupts", ofObjects},
			Prop{"checkpoint", checkpoint}, Prop{"state", typed("null", "object")}, Prop{"result", anything},
		))},
		Prop{"metadata", typed("null", "object")}, Prop{"created_at", timeOrNull}, Prop{"checkpoint", checkpoint}, Prop{"parent_checkpoint", checkpoint},
		Prop{"interrupts", ofObjects}, Prop{"checkpoint_id", orNull}, Prop{"parent_checkpoint_id", orNull},
	))

	UpdatedAnswer = named("ThreadStateUpdateResponse", objectOf(
		Prop{"checkpoint", CheckpointConfig}, Prop{"configurable", CheckpointConfig}, Prop{"checkpoint_id", aText},
	))

	RunAnswer = named("Run", objectOf(
		Prop{"run_id", anID}, Prop{"thread_id", anID}, Prop{"assistant_id", anID}, Prop{"metadata", anObject},
		Prop{"status", enum("pending", "running", "success", "error", "interrupted", "timeout")}, Prop{"kwargs", anObject},
		Prop{"multitask_strategy", enum("reject", "rollback", "interrupt", "enqueue")}, Prop{"created_at", aTime}, Prop{"updated_at", aTime},
		Prop{"langsmith_session_name", orNull},
	))

	CronAnswer = named("Cron", objectOf(
		Prop{"cron_id", anID}, Prop{"assistant_id", anID}, Prop{"thread_id", orNull}, Prop{"user_id", aText}, Prop{"end_time", timeOrNull},
		Prop{"schedule", aText}, Prop{"timezone", orNull}, Prop{"payload", anObject}, Prop{"next_run_date", timeOrNull}, Prop{"metadata", anObject},
		Prop{"on_run_completed", orNull}, Prop{"enabled", aBool}, Prop{"created_at", aTime}, Prop{"updated_at", aTime},
	))

	ItemAnswer = named("Item", objectOf(
		Prop{"namespace", listOf(aText)}, Prop{"key", aText}, Prop{"value", anObject}, Prop{"created_at", aTime}, Prop{"updated_at", aTime},
		Prop{"score", typed("null", "number").doc("Only in searches.")},
	))

	UsageAnswer = named("ThreadStorage", objectOf(
		Prop{"thread_id", anID}, Prop{"total_bytes", aWhole.doc("The sum of the three.")}, Prop{"checkpoints", amount},
		Prop{"channel_values", objectOf(Prop{"count", aWhole}, Prop{"bytes", aWhole},
			Prop{"by_channel", &Schema{Types: []string{"object"}, Extra: objectOf(Prop{"versions", aWhole}, Prop{"bytes", aWhole})}})},
		Prop{"pending_writes", amount},
	))

	CountAnswer = aWhole
)

// Answers are the named schemas of answers.
var Answers = []*Schema{AssistantAnswer, ThreadAnswer, StateAnswer, UpdatedAnswer, RunAnswer, CronAnswer, ItemAnswer, UsageAnswer}

// ListOf is the schema of a list.
func ListOf(s *Schema) *Schema { return listOf(s) }

// ObjectWith is the schema of an object with one member.
func ObjectWith(name string, s *Schema) *Schema { return objectOf(Prop{name, s}) }
