package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"understudy/bridge/redis"
	"understudy/internal/app/advice"
	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/internal/fleet"
	"understudy/run/clock"
	"understudy/storage/postgres"
	"understudy/storage/sqlite"
)

// database looks at the Postgres database, without changing it.
func (d *doctor) database(ctx context.Context, cfg *config.Config) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	done := d.slow("waiting for database "+cfg.DatabasePlace(), time.Minute)
	in, err := postgres.Inspect(ctx, postgres.Options{URL: cfg.Storage.DatabaseURL, Connections: cfg.Storage.Connections}, configured(cfg))
	done()
	switch {
	case err != nil:
		d.noDatabase(cfg, err)
		return
	case in.Schema > in.Known:
		d.say("database", Problem, fmt.Sprintf("the database was written by a newer version of this program (schema %d; this one knows %d)", in.Schema, in.Known),
			"use that version, or a backup from before")
		return
	}
	d.clock(in.Ahead)
	if short := in.Room.Short(in.Connections); short != "" {
		d.say("database", Warning, short, "lower --database-connections, or raise max_connections in postgresql.conf")
	}
	if in.Schema < in.Known && !d.mayMigrate(ctx, cfg) {
		return
	}
	if in.Refused != "" {
		d.say("database", Problem, in.Refused, in.Fix)
		return
	}
	if in.Schema == 0 {
		d.say("database", Fine, "no tables of this program yet; the first start creates them", "")
		d.vectors(cfg, in.Vectors)
		return
	}
	d.apart(cfg, in.Servers)
	d.executed(cfg, in.Servers)
	d.locked(cfg, in.Locked)
	d.begins = in.Begins
	text := fmt.Sprintf("the database (%s, schema %d of %d) answers", sqlite.Megabytes(in.Size), in.Schema, in.Known)
	if in.Schema < in.Known {
		text += "; the next start migrates it"
	}
	d.say("database", Fine, text, "")
	d.vectors(cfg, in.Vectors)
}

// vectors reports whether the database compares the vectors of store.index itself.
func (d *doctor) vectors(cfg *config.Config, have postgres.Vectors) {
	if cfg.StoreIndex == nil {
		return
	}
	const without, then = "the database has no pgvector, and each semantic search reads all vectors below its namespace_prefix", "CREATE EXTENSION vector, and restart the servers"
	switch {
	case have.Version != "":
		d.say("store", Fine, "pgvector "+have.Version+" compares the vectors of semantic searches", "")
	case have.Creatable:
		d.say("store", Fine, "pgvector is installed; the next start creates its extension in the database", "")
	case have.Available:
		d.say("store", Warning, without, "as superuser, in this database: "+then)
	default:
		d.say("store", Warning, without, "install pgvector where Postgres runs; then as superuser, in this database: "+then)
	}
}

// apart reports servers of the database that would not share live streams with one of this configuration.
func (d *doctor) apart(cfg *config.Config, reports []fleet.Report) {
	self := fleet.Server{Live: fleet.Place(cfg.Streams.RedisURL != "", cfg.Streams.RedisPrefix)}
	for _, r := range reports {
		var other fleet.Server
		if time.Since(r.At) > fleet.Lately {
			continue
		}
		if r.Body == nil {
			d.say("redis", Fine, "servers of this database run, and their reports are encrypted with a key that doctor does not have: whether they use the same Redis was not checked", "")
			return
		}
		if err := json.Unmarshal(r.Body, &other); err != nil {
			d.say("database", Warning, fmt.Sprintf("the report of server %s is damaged: %v", r.Server, err), "restart that server")
			continue
		}
		if other.Draining {
			continue
		}
		if why := fleet.Apart(&self, &other); why != "" {
			d.say("redis", Warning, fmt.Sprintf("a server of this database, %s on %s, has its live streams elsewhere (%s): clients of one miss events of runs of the other", other.ID, other.Host, why), fleet.ApartFix)
			return
		}
	}
}

// executed reports that none of the servers of the database executes runs, or those of graphs of this configuration; while none runs, that the one of this
// configuration would not.
func (d *doctor) executed(cfg *config.Config, reports []fleet.Report) {
	servers, serving := 0, 0
	var graphs []string
	for _, r := range reports {
		var s fleet.Server
		switch {
		case time.Since(r.At) > fleet.Lately:
		case r.Body == nil, json.Unmarshal(r.Body, &s) != nil:
			return // it is not known
		case s.Jobs > 0 && !s.Draining && len(s.Graphs) == 0:
			return // it loads, or does not report them
		default:
			if servers++; s.Jobs == 0 || s.Draining {
				serving++
			} else {
				graphs = append(graphs, s.Graphs...)
			}
		}
	}
	text := fmt.Sprintf("no server executes runs: of the %d that run on the database none does; runs wait until one starts that does", servers)
	switch {
	case servers == 0 && cfg.Workers.Concurrency != 0:
		return
	case servers == 0:
		text = "no server executes runs: --concurrency is 0, and no other runs on the database; runs wait until one starts that does"
	case serving < servers:
		if serving == 0 && cfg.Workers.Concurrency != 0 {
			return // the one that starts executes them
		}
		missing := without(cfg.Graphs, graphs)
		if len(missing) == 0 {
			return
		}
		text = fmt.Sprintf("no server executes runs of %s: of the %d that run on the database %d execute runs, of other graphs; they wait until one starts that does",
			strings.Join(missing, ", "), servers, servers-serving)
	}
	d.say("workers", Warning, text, "start understudy worker with the same langgraph.json and database, or leave out --concurrency 0")
}

// without returns the names of graphs that are not among some.
func without(graphs []config.Graph, some []string) (names []string) {
	for i := range graphs {
		if !slices.Contains(some, graphs[i].ID) {
			names = append(names, graphs[i].ID)
		}
	}
	return names
}

// clock reports whether this machine has the time of the database. Leases and due times use that of the database.
func (d *doctor) clock(ahead time.Duration) {
	const fix = "let NTP set both clocks (timedatectl); IDs, logs and traces have the time of this machine"
	way, off := "ahead of", ahead.Abs()
	if ahead < 0 {
		way = "behind"
	}
	if off > clock.SkewWorthSaying {
		d.say("clock", Warning, fmt.Sprintf("the clock of this machine is %s %s that of the database", off.Round(100*time.Millisecond), way), fix)
		return
	}
	d.say("clock", Fine, "this machine and the database agree on the time, to the second", "")
}

// noDatabase reports that the database cannot be examined, in the words with which a server does not start.
func (d *doctor) noDatabase(cfg *config.Config, err error) {
	if p := advice.Database(cfg.Where("database-url"), cfg.Storage.DatabaseURL, err); p != nil {
		d.say("database", Problem, p.Text, p.Fix)
		return
	}
	d.say("database", Problem, fmt.Sprintf("database %s: %v", cfg.DatabasePlace(), err), "correct the address in "+cfg.Where("database-url")+", or what it says of the database")
}

// What a migration needs: a schema to make tables in, the right to do that, and tables that are ours to change.
const askRights = `SELECT current_user, coalesce(current_schema(), ''), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), current_setting('search_path'),
	coalesce((SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass('understudy_migrations') AND NOT pg_has_role(relowner, 'USAGE')), ''),
	current_setting('transaction_read_only') = 'on'`

// mayMigrate reports whether the next start can make or change tables.
func (d *doctor) mayMigrate(ctx context.Context, cfg *config.Config) bool {
	pool, err := pgxpool.ParseConfig(cfg.Storage.DatabaseURL)
	if err != nil {
		d.say("database", Problem, "the address cannot be read", "correct --database-url") // it was validated
		return false
	}
	if pool.ConnConfig.ConnectTimeout == 0 {
		pool.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	var user, schema, path, owner string
	var create, readOnly bool
	conn, err := pgx.ConnectConfig(ctx, pool.ConnConfig)
	if err == nil {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it holds nothing
		err = conn.QueryRow(ctx, askRights).Scan(&user, &schema, &create, &path, &owner, &readOnly)
	}
	name := func(s string) string { return pgx.Identifier{s}.Sanitize() }
	switch {
	case err != nil:
		d.noDatabase(cfg, err)
	case readOnly:
		d.say("database", Problem, "the database is read-only, and its tables are to be made or changed", "name the primary in --database-url, not a replica")
	case schema == "":
		d.say("database", Problem, fmt.Sprintf("no schema of the search_path (%s) exists, or user %s may not use it: there is no place for tables", path, user),
			"make one: CREATE SCHEMA … AUTHORIZATION "+name(user)+"; or correct search_path in --database-url")
	case !create:
		d.say("database", Problem, fmt.Sprintf("user %s may not make tables in schema %s, and the next start has to", user, schema),
			fmt.Sprintf("as the owner of the schema: GRANT CREATE, USAGE ON SCHEMA %s TO %s", name(schema), name(user)))
	case owner != "":
		d.say("database", Problem, fmt.Sprintf("the tables belong to %s, and the next start, as %s, has to change them", owner, user),
			"start this version once as "+owner+", or as its superuser: REASSIGN OWNED BY "+name(owner)+" TO "+name(user))
	default:
		return true
	}
	return false
}

// oldestRedis is the first version that has all that streams need.
var oldestRedis = [2]int{6, 2}

// redis looks at the Redis that carries live streams, without changing it.
func (d *doctor) redis(ctx context.Context, cfg *config.Config) {
	switch {
	case cfg.Streams.RedisURL == "" && cfg.Storage.DatabaseURL != "":
		d.say("redis", Fine, "not configured: streams show only runs that this server executes", "for several servers, or understudy worker, set --redis-url")
		return
	case cfg.Streams.RedisURL == "":
		return
	case cfg.Storage.DatabaseURL == "":
		d.say("redis", Warning, "Redis is not used: a data folder has one server, and its streams stay in memory", "remove --redis-url / REDIS_URI, or set --database-url to a Postgres database")
		return
	}
	place := cfg.RedisPlace()
	const fix = "start it, or correct --redis-url / REDIS_URI; the server starts without it, and streams return 503"
	// It keeps the driver from writing to standard error by itself.
	if b, err := redis.New(redis.Options{URL: cfg.Streams.RedisURL}); err == nil {
		_ = b.Close() // it did nothing
	}
	done := d.slow("waiting for redis on "+place, backend.RedisPatience)
	err := backend.AskRedis(ctx, cfg)
	done()
	switch {
	case errors.Is(err, backend.ErrRedisRefuses):
		d.say("redis", Problem, err.Error(), "correct --redis-url / REDIS_URI (and --redis-ca, --redis-prefix); the server does not start with these settings")
		return
	case err != nil:
		d.say("redis", Problem, fmt.Sprintf("redis on %s does not respond: %v", place, err), fix)
		return
	}
	client, err := backend.RedisClient(cfg)
	if err != nil {
		d.say("redis", Problem, err.Error(), fix)
		return
	}
	defer func() { _ = client.Close() }() // it holds nothing
	const most = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	done = d.slow("waiting for the version of redis on "+place, most)
	info, err := client.Info(ctx).Result()
	done()
	version := field(info, "redis_version")
	if err != nil || version == "" {
		d.say("redis", Warning, fmt.Sprintf("redis on %s responds, but hides its version from this user; %d.%d or later is required", place, oldestRedis[0], oldestRedis[1]),
			"to let doctor check it: ACL SETUSER … +info")
		return
	}
	if tooOld(version) {
		d.say("redis", Problem, fmt.Sprintf("redis on %s is version %s", place, version), fmt.Sprintf("use Redis %d.%d or later", oldestRedis[0], oldestRedis[1]))
		return
	}
	if policy := field(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
		d.say("redis", Warning, fmt.Sprintf("redis on %s has maxmemory-policy %s: when its memory is full it evicts streams that are being read", place, policy),
			"set it with CONFIG SET maxmemory-policy noeviction, and in its configuration file")
	}
	if role := field(info, "role"); role == "slave" {
		d.say("redis", Problem, fmt.Sprintf("redis on %s is a replica, which takes no writes", place), "name the primary in "+cfg.Where("redis-url"))
		return
	}
	used, _ := strconv.ParseInt(field(info, "used_memory"), 10, 64)
	if most, _ := strconv.ParseInt(field(info, "maxmemory"), 10, 64); most > 0 && used >= most {
		d.say("redis", Problem, fmt.Sprintf("redis on %s is full (%d of %d bytes): it takes no records of streams", place, used, most),
			"raise maxmemory, or lower --stream-bytes, --stream-records or --resumable-ttl (docs/resources.md, Redis)")
		return
	}
	d.say("redis", Fine, fmt.Sprintf("redis on %s responds, version %s, key prefix %s", place, version, cfg.Streams.RedisPrefix), "")
}

// field returns the value of a line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

func tooOld(version string) bool {
	parts := append(strings.SplitN(version, ".", 3), "0", "0")
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false // a name of others
	}
	return major < oldestRedis[0] || major == oldestRedis[0] && minor < oldestRedis[1]
}
