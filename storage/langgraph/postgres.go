package langgraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonplus"
	"understudy/store"
	"understudy/transfer"
)

// Postgres is a database of langgraph-checkpoint-postgres, and of LangGraph's PostgresStore if it
// has one. It is opened either for reading (transfer.Source) or for writing (transfer.Sink).
type Postgres struct {
	conn *pgx.Conn
	tx   pgx.Tx // the transaction of all reads; nil when opened for writing
	name string

	checkpoints, items bool // which tables exist
	taskPath           bool // checkpoint_writes has task_path
	ttl                bool // store has expires_at
	notes              []string
}

var _ transfer.Sink = (*Postgres)(nil)

const (
	// lastMigration and lastStoreMigration are the newest known ones, of
	// langgraph-checkpoint-postgres 3.2. Newer tables are refused, because their meaning may
	// differ.
	lastMigration      = 9
	lastStoreMigration = 3
	// readSteps is how many checkpoints are read at once, with the values that only they have.
	readSteps = 16
	// readPage is how many threads or items are read at once.
	readPage = 500
	// readBytes bounds what is read at once. A single checkpoint or item may be larger.
	readBytes = 4 << 20
)

// OpenPostgres opens a database for reading, in one read-only transaction that sees one state.
// Call Close after use.
func OpenPostgres(ctx context.Context, dsn string) (*Postgres, error) {
	p, err := connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if err := p.begin(ctx); err != nil {
		return nil, errors.Join(p.explain(err), p.Close())
	}
	return p, nil
}

// OpenPostgresSink opens a database for writing. Call Close after use.
func OpenPostgresSink(ctx context.Context, dsn string) (*Postgres, error) {
	p, err := connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if err := p.refuseServer(ctx); err != nil {
		return nil, errors.Join(p.explain(err), p.Close())
	}
	if ours, err := p.has(ctx, "understudy_migrations"); err != nil || ours {
		if ours {
			err = errors.New("it is a database of understudy itself: name another one, or another schema: …?options=-csearch_path%3DSCHEMA")
		}
		return nil, errors.Join(p.explain(err), p.Close())
	}
	return p, nil
}

// connectTime bounds connecting, unless the address has connect_timeout.
const connectTime = 5 * time.Second

// connect opens a connection; errors never contain the password.
func connect(ctx context.Context, dsn string) (*Postgres, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		// The driver's message repeats the address without its password.
		return nil, fmt.Errorf("the address of the database cannot be parsed: %w; write it as postgres://user:password@host:5432/database", err)
	}
	config.RuntimeParams["application_name"] = "understudy"
	p := &Postgres{name: fmt.Sprintf("the database %s on %s:%d", config.Database, config.Host, config.Port)}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTime
	}
	if p.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, p.explain(err)
	}
	return p, nil
}

// explain adds to an error of the database what the user can do about it.
func (p *Postgres) explain(err error) error {
	var pg *pgconn.PgError
	var nobody *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg):
		switch pg.Code {
		case "28P01", "28000":
			return fmt.Errorf("%s rejects the user or password: %s; correct them in the address", p.name, pg.Message)
		case "3D000":
			return fmt.Errorf("%s does not exist: correct its name in the address", p.name)
		case "42501":
			return fmt.Errorf("%s: %s; give the user rights on LangGraph's tables (to read: GRANT SELECT ON ALL TABLES IN SCHEMA public TO …)", p.name, pg.Message)
		case "25006":
			return fmt.Errorf("%s is read-only (a replica?): export to its primary", p.name)
		case "53100":
			return fault.Wrap(fault.Unavailable, p.name+" has no room left on its disk; free some and run this again, it continues where it stopped", err)
		}
		return fmt.Errorf("%s: %w", p.name, err)
	case errors.As(err, &nobody), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Unavailable, p.name+" cannot be reached; is it running, and is the address right?", err)
	case p.conn != nil && p.conn.IsClosed():
		return fault.Wrap(fault.Unavailable, p.name+" has closed the connection; run this again, it continues where it stopped", err)
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// has reports whether a table is in the search path.
func (p *Postgres) has(ctx context.Context, table string) (found bool, err error) {
	err = p.conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&found)
	return found, err
}

// hasColumn reports whether a table has a column, which older versions may lack.
func (p *Postgres) hasColumn(ctx context.Context, table, column string) (found bool, err error) {
	err = p.conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped)", table, column).Scan(&found)
	return found, err
}

// errServer: the tables belong to LangGraph Server, whose schema is not public.
var errServer = errors.New("it belongs to a LangGraph Server (it has its tables assistant, thread and run), whose tables are not public: move through its API instead, " +
	"with understudy import --from http://HOST:PORT while the server runs")

// refuseServer returns errServer for a database of LangGraph Server.
func (p *Postgres) refuseServer(ctx context.Context) error {
	for _, table := range []string{"assistant", "thread", "run"} {
		if found, err := p.has(ctx, table); err != nil || !found {
			return err
		}
	}
	return errServer
}

// begin opens the transaction of all reads and examines the tables.
func (p *Postgres) begin(ctx context.Context) (err error) {
	if p.tx, err = p.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}); err != nil {
		return err
	}
	if err := p.refuseServer(ctx); err != nil {
		return err
	}
	return p.look(ctx)
}

// look finds out which tables exist, and of which version.
func (p *Postgres) look(ctx context.Context) (err error) {
	if p.checkpoints, err = p.has(ctx, "checkpoints"); err != nil {
		return err
	}
	if p.items, err = p.has(ctx, "store"); err != nil {
		return err
	}
	if !p.checkpoints && !p.items {
		return errors.New("it has no tables of LangGraph (checkpoints, store): name the right database, and the schema if it is not the first " +
			"of the search path: …?options=-csearch_path%3DSCHEMA")
	}
	if p.checkpoints {
		if err := p.known(ctx, "checkpoint_migrations", lastMigration); err != nil {
			return err
		}
		for table, columns := range map[string][]string{
			"checkpoints":       {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata"},
			"checkpoint_blobs":  {"thread_id", "checkpoint_ns", "channel", "version", "type", "blob"},
			"checkpoint_writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "blob"},
		} {
			for _, column := range columns {
				if found, err := p.hasColumn(ctx, table, column); err != nil {
					return err
				} else if !found {
					return fmt.Errorf("its table %s has no column %s: it is not of langgraph-checkpoint-postgres, or of a version before 1.0; "+
						"run setup() of a current saver on it", table, column)
				}
			}
		}
		if p.taskPath, err = p.hasColumn(ctx, "checkpoint_writes", "task_path"); err != nil {
			return err
		}
	}
	if !p.items {
		return nil
	}
	if err := p.known(ctx, "store_migrations", lastStoreMigration); err != nil {
		return err
	}
	if vectors, err := p.has(ctx, "store_vectors"); err != nil {
		return err
	} else if vectors {
		p.notes = append(p.notes, "vectors of store items (store_vectors) are not taken: they are made anew where an index is configured")
	}
	p.ttl, err = p.hasColumn(ctx, "store", "expires_at")
	return err
}

// known returns an error for tables of a newer version than this program knows.
func (p *Postgres) known(ctx context.Context, table string, last int) error {
	if found, err := p.has(ctx, table); err != nil || !found {
		return err
	}
	var at int
	if err := p.conn.QueryRow(ctx, "SELECT coalesce(max(v), -1) FROM "+table).Scan(&at); err != nil {
		return err
	}
	if at > last {
		return fmt.Errorf("its tables are of a newer version of LangGraph (%s says %d, this program knows %d): use a newer understudy", table, at, last)
	}
	return nil
}

// Name implements transfer.Source.
func (p *Postgres) Name() string { return p.name }

// Notes implements transfer.Source.
func (p *Postgres) Notes() []string { return p.notes }

// Close ends the transaction and the connection.
func (p *Postgres) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return p.conn.Close(ctx)
}

// CountThreads implements transfer.Source.
func (p *Postgres) CountThreads(ctx context.Context) (n int, err error) {
	if !p.checkpoints {
		return 0, nil
	}
	err = p.conn.QueryRow(ctx, "SELECT count(DISTINCT thread_id) FROM checkpoints").Scan(&n)
	return n, p.explain(err)
}

// Threads implements transfer.Source.
func (p *Postgres) Threads(ctx context.Context) iter.Seq2[*transfer.Thread, error] {
	return func(yield func(*transfer.Thread, error) bool) {
		for last, first := "", true; p.checkpoints; first = false {
			rows, err := p.conn.Query(ctx, "SELECT thread_id, count(*) FROM checkpoints WHERE $1 OR thread_id > $2 GROUP BY thread_id ORDER BY thread_id LIMIT $3",
				first, last, readPage)
			var page []transfer.Thread
			if err == nil {
				page, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (t transfer.Thread, err error) {
					err = r.Scan(&t.Key, &t.Checkpoints)
					return t, err
				})
			}
			if err != nil {
				yield(nil, p.explain(err))
				return
			}
			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			if len(page) < readPage {
				return
			}
			last = page[len(page)-1].Key
		}
	}
}

// History implements transfer.Source.
func (p *Postgres) History(ctx context.Context, t *transfer.Thread) (transfer.History, error) {
	rows, err := p.conn.Query(ctx, "SELECT checkpoint_ns, checkpoint_id, coalesce(parent_checkpoint_id, '') FROM checkpoints WHERE thread_id = $1 "+
		"ORDER BY checkpoint_ns, checkpoint_id", t.Key)
	if err != nil {
		return nil, p.explain(err)
	}
	links, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (l transfer.Link, err error) {
		err = r.Scan(&l.NS, &l.ID, &l.Parent)
		return l, err
	})
	return &postgresHistory{p, t.Key, links}, p.explain(err)
}

// postgresHistory implements transfer.History for one thread.
type postgresHistory struct {
	p      *Postgres
	thread string
	links  []transfer.Link
}

func (h *postgresHistory) Links() []transfer.Link { return h.links }
func (h *postgresHistory) Close() error           { return nil }

// place identifies a checkpoint of the thread.
type place struct {
	ns string
	id id.Checkpoint
}

// blobKey identifies a channel value of the thread.
type blobKey struct{ ns, channel, version string }

// Read implements transfer.History. A value that several checkpoints name is passed to fn once,
// with the first of them, so that memory does not grow with the thread.
func (h *postgresHistory) Read(ctx context.Context, links []transfer.Link, fn func(*transfer.Step) error) error {
	given := map[blobKey]bool{}
	for len(links) > 0 {
		n, err := h.fitting(ctx, links[:min(len(links), readSteps)])
		if err != nil {
			return h.p.explain(err)
		}
		steps, err := h.read(ctx, links[:n])
		if err != nil {
			return h.p.explain(err)
		}
		for _, l := range links[:n] {
			at := place{l.NS, l.ID}
			step := steps[at]
			if step == nil {
				continue // cannot happen within one snapshot; verification would report it
			}
			delete(steps, at)
			if err := h.values(ctx, step, given); err != nil {
				return h.p.explain(fmt.Errorf("checkpoint %s: %w", l.ID, err))
			}
			if err := fn(step); err != nil {
				return err
			}
		}
		links = links[n:]
	}
	return nil
}

// fitting returns how many of some checkpoints have no more than readBytes with their writes; at
// least 1.
func (h *postgresHistory) fitting(ctx context.Context, links []transfer.Link) (n int, err error) {
	namespaces, ids := columnsOf(links)
	err = h.p.conn.QueryRow(ctx, "SELECT count(*) FROM ("+
		"SELECT sum(coalesce(octet_length(c.checkpoint::text) + octet_length(c.metadata::text), 0) + w.size) OVER (ORDER BY k.n) AS size "+
		"FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS k (ns, id, n) "+
		"LEFT JOIN checkpoints c ON c.thread_id = $1 AND c.checkpoint_ns = k.ns AND c.checkpoint_id = k.id "+
		"CROSS JOIN LATERAL (SELECT coalesce(sum(octet_length(blob)), 0) AS size FROM checkpoint_writes "+
		"WHERE thread_id = $1 AND checkpoint_ns = k.ns AND checkpoint_id = k.id) AS w) AS sizes WHERE size <= $4", h.thread, namespaces, ids, readBytes).Scan(&n)
	return max(n, 1), err
}

func columnsOf(links []transfer.Link) (namespaces, ids []string) {
	namespaces, ids = make([]string, len(links)), make([]string, len(links))
	for i, l := range links {
		namespaces[i], ids[i] = l.NS, string(l.ID)
	}
	return namespaces, ids
}

// read loads some checkpoints with their writes, and the values that were not passed before.
func (h *postgresHistory) read(ctx context.Context, links []transfer.Link) (map[place]*transfer.Step, error) {
	namespaces, ids := columnsOf(links)
	const these = "FROM unnest($2::text[], $3::text[]) AS k (ns, id) JOIN "
	steps := make(map[place]*transfer.Step, len(links))
	rows, err := h.p.conn.Query(ctx, "SELECT c.checkpoint_ns, c.checkpoint_id, coalesce(c.parent_checkpoint_id, ''), c.checkpoint::text, c.metadata::text "+these+
		"checkpoints c ON c.thread_id = $1 AND c.checkpoint_ns = k.ns AND c.checkpoint_id = k.id", h.thread, namespaces, ids)
	if err != nil {
		return nil, err
	}
	var data, metadata string
	var c checkpointer.Checkpoint
	if _, err := pgx.ForEachRow(rows, []any{&c.NS, &c.ID, &c.Parent, &data, &metadata}, func() error {
		step := &transfer.Step{}
		step.Checkpoint = c
		step.Thread = id.Thread(h.thread)
		step.Data, step.Metadata = json.RawMessage(data), json.RawMessage(metadata)
		steps[place{c.NS, c.ID}] = step
		return nil
	}); err != nil {
		return nil, err
	}
	path := "''"
	if h.p.taskPath {
		path = "w.task_path"
	}
	if rows, err = h.p.conn.Query(ctx, "SELECT w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.channel, coalesce(w.type, ''), w.blob, "+path+" "+these+
		"checkpoint_writes w ON w.thread_id = $1 AND w.checkpoint_ns = k.ns AND w.checkpoint_id = k.id ORDER BY w.task_id, w.idx", h.thread, namespaces, ids); err != nil {
		return nil, err
	}
	var at place
	var w checkpointer.Write
	if _, err := pgx.ForEachRow(rows, []any{&at.ns, &at.id, &w.TaskID, &w.Index, &w.Channel, &w.Type, &w.Data, &w.Path}, func() error {
		if step := steps[at]; step != nil {
			step.Writes = append(step.Writes, w)
		}
		w.Data = nil
		return nil
	}); err != nil {
		return nil, err
	}
	return steps, nil
}

// values loads the values that a checkpoint's versions name, and converts an old checkpoint.
func (h *postgresHistory) values(ctx context.Context, step *transfer.Step, given map[blobKey]bool) error {
	var channels, versions []string
	gjson.GetBytes(step.Data, "channel_versions").ForEach(func(k, v gjson.Result) bool {
		key := blobKey{step.NS, k.String(), v.String()}
		if !given[key] {
			given[key] = true
			channels, versions = append(channels, key.channel), append(versions, key.version)
		}
		return true
	})
	numbers := numbersInVersions(step.Data)
	if len(channels) > 0 {
		rows, err := h.p.conn.Query(ctx, "SELECT b.channel, b.version, b.type, b.blob FROM unnest($3::text[], $4::text[]) AS k (channel, version) "+
			"JOIN checkpoint_blobs b ON b.thread_id = $1 AND b.checkpoint_ns = $2 AND b.channel = k.channel AND b.version = k.version ORDER BY b.channel",
			h.thread, step.NS, channels, versions)
		if err != nil {
			return err
		}
		var b checkpointer.Blob
		if _, err := pgx.ForEachRow(rows, []any{&b.Channel, &b.Version, &b.Type, &b.Data}, func() error {
			own := b
			b.Data = nil
			if numbers {
				own.Version = paddedVersion(own.Version)
			}
			step.Blobs = append(step.Blobs, own)
			return nil
		}); err != nil {
			return err
		}
	}
	if numbers {
		step.Data = padVersions(step.Data)
	}
	if versionOf(step.Data) >= firstInline || step.Parent == "" || hasSends(step) {
		return nil
	}
	path := ""
	if h.p.taskPath {
		path = "task_path, "
	}
	rows, err := h.p.conn.Query(ctx, "SELECT coalesce(type, ''), blob FROM checkpoint_writes WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = $3 "+
		"AND channel = '"+tasksChannel+"' ORDER BY "+path+"task_id, idx", h.thread, step.NS, step.Parent)
	if err != nil {
		return err
	}
	var sends [][]byte
	var typ string
	var data []byte
	if _, err := pgx.ForEachRow(rows, []any{&typ, &data}, func() error {
		if typ == jsonplus.TypeBytes || typ == jsonplus.TypeBytearray {
			return fmt.Errorf("one is stored as %s, which is not a Send", typ)
		}
		send, err := jsonplus.Pack(typ, data)
		sends = append(sends, send)
		return err
	}); err != nil {
		return fmt.Errorf("sends: %w", err)
	}
	addSends(step, sends)
	return nil
}

// Items implements transfer.Source.
func (p *Postgres) Items(ctx context.Context) iter.Seq2[*store.Item, error] {
	return func(yield func(*store.Item, error) bool) {
		expiry, alive := "NULL::timestamptz AS expires_at, NULL::float8 AS ttl", "true"
		if p.ttl {
			expiry, alive = "expires_at, ttl_minutes::float8 AS ttl", "(expires_at IS NULL OR expires_at > now())"
		}
		limit := 16 // measuring an item costs as much as reading it
		for prefix, key, first := "", "", true; p.items; first = false {
			rows, err := p.conn.Query(ctx, "SELECT prefix, key, value, created_at, updated_at, expires_at, ttl FROM ("+
				"SELECT *, sum(octet_length(value)) OVER (ORDER BY prefix, key) - octet_length(value) AS before FROM ("+
				"SELECT prefix, key, value::text AS value, created_at, updated_at, "+expiry+" FROM store WHERE ($1 OR (prefix, key) > ($2, $3)) AND "+alive+
				" ORDER BY prefix, key LIMIT $4) AS page) AS page WHERE before <= $5 ORDER BY prefix, key", first, prefix, key, limit, readBytes)
			var page []*store.Item
			if err == nil {
				page, err = pgx.CollectRows(rows, scanItem)
			}
			if err != nil {
				yield(nil, p.explain(err))
				return
			}
			for _, i := range page {
				if !yield(i, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			limit = min(2*len(page), readPage)
			last := page[len(page)-1]
			prefix, key = strings.Join(last.Namespace, "."), last.Key
		}
	}
}

// scanItem reads an item of the store.
func scanItem(r pgx.CollectableRow) (*store.Item, error) {
	i := &store.Item{}
	var prefix, value string
	var created, updated, expires *time.Time
	var minutes *float64
	if err := r.Scan(&prefix, &i.Key, &value, &created, &updated, &expires, &minutes); err != nil {
		return nil, err
	}
	i.Namespace, i.Value = strings.Split(prefix, "."), json.RawMessage(value)
	for to, from := range map[*time.Time]*time.Time{&i.CreatedAt: created, &i.UpdatedAt: updated, &i.ExpiresAt: expires} {
		if from != nil {
			*to = from.UTC()
		}
	}
	if minutes != nil {
		i.TTL = time.Duration(*minutes * float64(time.Minute))
	}
	return i, nil
}
