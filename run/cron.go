package run

import (
	"encoding/json"
	"time"

	"understudy/id"
)

// Cron is a schedule that makes runs.
type Cron struct {
	ID             id.Cron
	Assistant      id.Assistant
	Thread         id.Thread // "" for stateless ones
	Schedule       string    // five fields, or six with seconds at the end
	Timezone       string    // IANA name; "" UTC
	EndTime        *time.Time
	Payload        json.RawMessage // the request, with assistant_id resolved and config.configurable.cron_id set
	Next           *time.Time      // nil: never again
	Metadata       json.RawMessage
	OnRunCompleted string // delete, keep, or "" (null) on threads
	Enabled        bool
	CreatedAt      time.Time
	UpdatedAt      time.Time

	// Account is whose scheduled task it is, and Task what it has in addition; "" and nil for crons.
	Account string
	Task    *Task
}

// CronQuery selects crons. Zero fields do not restrict, but without Account and Tasks scheduled tasks are left out.
type CronQuery struct {
	Account   string // whose scheduled tasks are selected, and nothing else; without their Payload
	Tasks     bool   // scheduled tasks of all accounts are selected, and nothing else; without their Payload
	Assistant id.Assistant
	Thread    id.Thread
	Enabled   *bool
	Metadata  json.RawMessage
	SortBy    string // cron_id, assistant_id, thread_id, created_at, updated_at, next_run_date, end_time; default created_at
	Ascending bool
	Limit     int
	Offset    int
}

// NewCron is a wish for a cron.
type NewCron struct {
	ID             id.Cron   // "": a new one
	Thread         id.Thread // "" for stateless ones
	AssistantID    string    // UUID or graph name
	Schedule       string
	Timezone       string
	EndTime        *time.Time
	Payload        map[string]json.RawMessage // the fields of the request that belong to runs: input, command, config, context, metadata, webhook, interrupt_before, …
	Metadata       json.RawMessage
	OnRunCompleted string
	Enabled        bool
}

// CronPatch changes a cron. Nil fields stay.
type CronPatch struct {
	Schedule       *string
	Timezone       *string
	EndTime        *time.Time
	ClearEndTime   bool // end_time: null
	Enabled        *bool
	Payload        map[string]json.RawMessage // merged into the payload
	Metadata       json.RawMessage
	OnRunCompleted *string
}
