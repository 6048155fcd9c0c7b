package run

import (
	"context"
	"time"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/idempotency"
	"understudy/run/webhook"
	"understudy/thread"
)

// Store is what runs need of the storage. Reads see committed rows.
type Store interface {
	// Write runs fn in a transaction, alone: no other writer sees or changes anything meanwhile. An error from fn undoes all it did.
	// It returns after the commit is durable. fn must not block, and may be run again after a serialization failure.
	Write(ctx context.Context, fn func(Tx) error) error
	checkpointer.Reader
	CronReader
	RecordStore

	// Run returns a run; with an empty thread, of any thread. fault.NotFound when there is none.
	Run(ctx context.Context, t id.Thread, r id.Run) (*Run, error)
	// Runs lists newest first.
	Runs(ctx context.Context, t id.Thread, q Query) ([]*Run, error)
	// NewestRuns calls fn with the newest runs of all the threads together, newest first and without arguments. The caller has found the threads by a
	// search of its context: they are not narrowed again.
	NewestRuns(ctx context.Context, threads []id.Thread, limit int, fn func(*Run) error) error
	// RecentRuns returns runs of all threads, newest first and without arguments, and where the next page begins; "": there is none. A page may be
	// short, also empty, when few runs are selected: a call looks at a bounded number of them.
	RecentRuns(ctx context.Context, q Recent) (page []*Run, next id.Run, err error)
	// ActiveRuns returns pending and running runs, oldest due first; with an empty thread those of all threads.
	ActiveRuns(ctx context.Context, t id.Thread) ([]*Run, error)
	// ActiveThreads returns threads with runs that are selected, ordered by id, above an id. A page may be short while there are more; not empty.
	ActiveThreads(ctx context.Context, of Active, above id.Thread, limit int) ([]id.Thread, error)
	// CountActive counts the runs that are selected. It looks at MaxActive of each status at most.
	CountActive(ctx context.Context, of Active) (ActiveCount, error)
	Thread(ctx context.Context, t id.Thread) (*thread.Thread, error)
	Assistant(ctx context.Context, a id.Assistant) (*assistant.Assistant, error)
	// NextDue is when the earliest pending run that is not blocked by a running one on its thread becomes due, excluding runs of the named
	// graphs; zero when there is none. Excluded runs cost nothing, however many of them wait.
	NextDue(ctx context.Context, exclude ...string) (time.Time, error)
	// Queue returns the state of the queue at a time, counting up to a bound. However many runs have ended, it costs the same.
	Queue(ctx context.Context, now time.Time, bound int) (Queue, error)

	// Deliveries returns deliveries that are due, and when the next one that is not is due (zero: none).
	Deliveries(ctx context.Context, q webhook.Query) (due []*webhook.Delivery, next time.Time, err error)

	// SpanBatches returns the stored batches of spans of a run in order; none when it is not there.
	SpanBatches(ctx context.Context, t id.Thread, r id.Run) ([][]byte, error)

	// ModelCalls returns the stored model calls of a run that is not over.
	ModelCalls(ctx context.Context, r id.Run) ([]graph.ModelCall, error)
	// Completions returns what was kept of the ends of runs, by run. Some may have nothing.
	Completions(ctx context.Context, runs ...id.Run) (map[id.Run]*Completion, error)
}

// CronReader reads committed rows of crons.
type CronReader interface {
	Cron(ctx context.Context, c id.Cron) (*Cron, error)
	Crons(ctx context.Context, q CronQuery) ([]*Cron, error)
	CountCrons(ctx context.Context, q CronQuery) (int, error)
	// NextCron is when the next enabled cron is due; zero when there is none. Scheduled tasks count with tasks only.
	NextCron(ctx context.Context, tasks bool) (time.Time, error)
	// DueCrons is that of CronTx, without leaving any out.
	DueCrons(ctx context.Context, now time.Time, limit int, tasks bool) ([]*Cron, error)
	// Occurrences returns the outcomes of the times at which a scheduled task was due, newest first.
	Occurrences(ctx context.Context, c id.Cron, limit, offset int) ([]*Occurrence, error)
}

// RecordStore keeps stream records of resumable runs.
type RecordStore interface {
	// KeepRecords stores records of threads, in one transaction. Offsets are set. Those of runs that are gone are left out; on a Shared store also those of
	// an attempt that is not its run's any more, and those that are kept already.
	KeepRecords(ctx context.Context, records map[id.Thread][]*bridge.Record) error
	// Records returns kept stream records of a thread above an offset, in order.
	Records(ctx context.Context, t id.Thread, after bridge.Offset, limit int) ([]*bridge.Record, error)
	// RunRecords calls fn with the kept stream records of a run above an offset, in order. Of each only Offset, Event, Data and Summarizer are set,
	// valid during the call and after it.
	RunRecords(ctx context.Context, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error
	// EventsGone is until when events of a thread are gone with runs that were deleted (RecordTx.MarkGone); zero: none are.
	EventsGone(ctx context.Context, t id.Thread) (time.Time, error)
}

// Expecting is an optional ability of a Tx: it reads at once what a step is about to read one by one. Results do not change, and what was expected
// need not be read. Call it before anything else about the thread.
type Expecting interface {
	// ExpectNew: a thread is going to be inserted whose id was made just now, so that no other thread has it.
	ExpectNew(t id.Thread)
	// ExpectCreate: a run is going to be inserted.
	ExpectCreate(t id.Thread)
	// ExpectSave: a checkpoint of a run is going to be saved.
	ExpectSave(r *Run)
	// ExpectEnd: a run is going to be ended, and its thread to be settled.
	ExpectEnd(r *Run)
}

// Expect calls fn when tx is Expecting.
func Expect(tx Tx, fn func(Expecting)) {
	if e, ok := tx.(Expecting); ok {
		fn(e)
	}
}

// Tx is a transaction, put together of what the parts of the service need. Rows that are not there: fault.NotFound from singular methods.
type Tx interface {
	checkpointer.Tx
	eventstore.Tx
	ThreadTx
	QueueTx
	CompletionTx
	CronTx
	DeliveryTx
	RecordTx
	IdempotencyTx
	SpanTx
}

// ThreadTx is the part of a Tx for threads and their assistants.
type ThreadTx interface {
	Thread(t id.Thread) (*thread.Thread, error)
	InsertThread(t *thread.Thread) error
	UpdateThread(t *thread.Thread) error // the whole row, by id
	// DeleteThread deletes a thread with its runs, checkpoints, events, records and crons.
	DeleteThread(t id.Thread) error
	Assistant(a id.Assistant) (*assistant.Assistant, error)
}

// QueueTx is the part of a Tx for the rows of runs, which are the queue.
type QueueTx interface {
	Run(t id.Thread, r id.Run) (*Run, error)
	InsertRun(r *Run) error
	UpdateRun(r *Run) error                // the whole row, by id
	DeleteRun(t id.Thread, r id.Run) error // with its kept records, not its checkpoints
	// ActiveRuns returns pending and running runs of a thread, oldest due first; with an empty thread those of all threads.
	ActiveRuns(t id.Thread) ([]*Run, error)
	// HasActiveRuns reports whether a thread has pending or running runs.
	HasActiveRuns(t id.Thread) (bool, error)
	// DueRun returns the oldest pending run that is due by now and whose thread has no running one, excluding runs of the named graphs.
	// fault.NotFound when there is none.
	DueRun(now time.Time, exclude ...string) (*Run, error)
	// RunsOf returns the pending and running runs that AddRunOf has added for an identity. Other transactions that count them wait for this one.
	RunsOf(identity string) ([]id.Run, error)
	AddRunOf(identity string, r id.Run) error
	// MarkPassed notes that the run saved a checkpoint: what it did before does not count against it any more.
	MarkPassed(r id.Run) error
	// Fence returns a run's attempt, status and requested cancel, cheaply. fault.NotFound when the run is gone.
	Fence(r id.Run) (attempt int, status Status, cancel Action, err error)
}

// CompletionTx is the part of a Tx for what is known of a run that is over.
type CompletionTx interface {
	// RunMessages calls fn with the message events of a run, in order. Content is valid during the call only.
	RunMessages(t id.Thread, r id.Run, fn func(*eventstore.Event) error) error
	// ChannelText returns the text of a channel at the newest root checkpoint of a thread; "" when it holds none.
	ChannelText(t id.Thread, channel string) (string, error)
	// PutModelCalls stores model calls of a run. Those whose ids are stored already stay as they are.
	PutModelCalls(r id.Run, calls []graph.ModelCall) error
	// TakeModelCalls returns the stored model calls of a run, and deletes them.
	TakeModelCalls(r id.Run) ([]graph.ModelCall, error)
	// PutCompletion keeps it until the run is deleted, in place of what may be there.
	PutCompletion(r id.Run, c *Completion) error
}

// CronTx is the part of a Tx for crons.
type CronTx interface {
	Cron(c id.Cron) (*Cron, error)
	InsertCron(c *Cron) error
	// CountTasks counts the scheduled tasks of an account. Until the transaction ends, others that count them wait.
	CountTasks(account string) (int, error)
	UpdateCron(c *Cron) error
	DeleteCron(c id.Cron) error
	// DueCrons returns enabled crons due by now, those due longest first. On a Shared store it leaves out those that another instance is firing.
	// Scheduled tasks are among them with tasks only.
	DueCrons(now time.Time, limit int, tasks bool) ([]*Cron, error)
	// InsertOccurrence deletes the oldest of the task when there are more than MaxOccurrences.
	InsertOccurrence(o *Occurrence) error
	// ActiveOccurrences returns the scheduled task of each of their runs that is pending or running. Until the transaction ends, others that ask wait.
	ActiveOccurrences() ([]id.Cron, error)
	Run(t id.Thread, r id.Run) (*Run, error)
}

// DeliveryTx is the part of a Tx for the outbox of webhooks.
type DeliveryTx interface {
	InsertDelivery(d *webhook.Delivery) error
	UpdateDelivery(d *webhook.Delivery) error
	DeleteDelivery(d int64) error
}

// RecordTx is the part of a Tx for kept stream records.
type RecordTx interface {
	// RunRecords is RecordStore.RunRecords.
	RunRecords(t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error
	// DeleteRecords drops records of runs that ended before a time.
	DeleteRecords(endedBefore time.Time) (int, error)
	// MarkGone notes that events of a thread until a time are gone, because their run is deleted. Its row is gone too.
	MarkGone(t id.Thread, until time.Time) error
}

// SpanTx is the part of a Tx for spans of runs.
type SpanTx interface {
	// PutSpans stores a batch. One with its number that has fewer spans is replaced, and one with more stays: what is stored only grows.
	PutSpans(r id.Run, b *SpanBatch) error
	// DeleteSpans deletes at most limit batches that were stored before a time.
	DeleteSpans(before time.Time, limit int) (int, error)
}

// SpanBatch is a number of spans of a run, encoded by package run/spans.
type SpanBatch struct {
	Number int64 // its place among those of the run
	Spans  int
	At     time.Time
	Body   []byte
}

// IdempotencyTx is the part of a Tx for keys of requests.
type IdempotencyTx interface {
	idempotency.Tx
	// DeleteIdempotencyRecords deletes at most limit records that do not count any more.
	DeleteIdempotencyRecords(expired time.Time, limit int) (int, error)
}

// Shared is a Store that several instances work on at once. All go by its time.
type Shared interface {
	Store
	// Lapsed returns running runs whose lease ended before a time, the longest ago first.
	Lapsed(ctx context.Context, before time.Time, limit int) ([]*Run, error)
	// TakeDeliveries is Deliveries, but what it returns is not due before until any more: no other instance gets it meanwhile.
	TakeDeliveries(ctx context.Context, q webhook.Query, until time.Time) (due []*webhook.Delivery, next time.Time, err error)
	// Clock is the time of the database.
	Clock(ctx context.Context) (time.Time, error)
	// Ended returns those of the runs that are over, or not there.
	Ended(ctx context.Context, runs []id.Run) ([]id.Run, error)
	// Send sends signals to all servers, this one included. They may be lost.
	Send(ctx context.Context, s ...Signal) error
	// Listen calls notify for each signal until ctx ends, whose cause it returns. After a time in which signals may have been lost, and at the
	// beginning, notify is called with the zero Signal. notify must not block.
	Listen(ctx context.Context, notify func(Signal)) error
}

// Queue is the state of the queue of all servers. Each number is counted up to the requested bound.
type Queue struct {
	Pending, Running int
	// Due are those of Pending that wait for nothing but a job: their time has come, and nothing runs on their thread.
	Due int
	// First and Middle are when the first and the middle one of the pending runs is or was due, FirstDue the first of Due; zero: there is none.
	First, Middle, FirstDue time.Time
}
