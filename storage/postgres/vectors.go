package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"understudy/storage/internal/relational"
	"understudy/storage/internal/vectors"
	"understudy/store"
)

// pgvector is how the database compares vectors of one model. The zero value: it cannot, and the server reads them.
type pgvector struct {
	exact       relational.Statement
	approximate map[int]relational.Statement // by the number of neighbors
	index       string                       // name of the index
	create      string                       // the statement that makes it; "" if there is none for so many dimensions
}

const (
	extension = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
	// indexable are the most dimensions that an index of pgvector takes, as they are and with half the precision.
	indexable, indexableHalved = 2000, 4000
)

// UseVectors implements store.Backend. The extension is created where the role may.
func (i items) UseVectors(ctx context.Context, model string, dims int) error {
	s := i.Store
	version, err := s.pgvectorVersion(ctx)
	if err != nil {
		return fmt.Errorf("pgvector: %w", classify(err))
	}
	if version == "" {
		s.vector.Store(&pgvector{})
		s.log.WarnContext(ctx, "the database has no pgvector, and each semantic search reads all vectors below its namespace_prefix. "+
			"Install pgvector, run CREATE EXTENSION vector as superuser, and restart")
		return nil
	}
	s.vector.Store(newPgvector(model, dims, version))
	return nil
}

// pgvectorVersion returns the version of the extension; "" if it cannot be had.
func (s *Store) pgvectorVersion(ctx context.Context) (version string, err error) {
	look := func() error {
		err := s.pool.QueryRow(ctx, extension).Scan(&version)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}
	if err := look(); err != nil || version != "" {
		return version, err
	}
	if _, err := s.pool.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS vector"); err != nil {
		s.log.DebugContext(ctx, "pgvector not created", "error", err)
		return "", nil
	}
	s.pool.Reset() // prepared statements and caches of types of other connections
	return version, look()
}

func newPgvector(model string, dims int, version string) *pgvector {
	literal := "'" + strings.ReplaceAll(model, "'", "''") + "'" // as in the index, which is for this model alone
	whole := fmt.Sprintf("::vector(%d)", dims)
	compared, class := whole, "vector_ip_ops"
	if dims > indexable {
		compared, class = fmt.Sprintf("%s::halfvec(%d)", whole, dims), "halfvec_ip_ops"
	}
	// The inner product, because vectors have length one, or are all zeros, for which the cosine is NaN.
	distance := func(cast string) string { return "vector" + cast + " <#> $2::real[]" + cast }
	statement := func(limit string) string {
		return "SELECT i.namespace, i.key, i.value, i.created_at, i.updated_at, i.ttl, i.expires_at, i.indexed, (-v.distance)::text FROM " +
			"(SELECT namespace, key, " + distance(whole) + " AS distance FROM store_vectors WHERE model = " + literal + " AND namespace >= $3 AND namespace < $4" + limit + ") v " +
			"JOIN store_items i ON i.namespace = v.namespace AND i.key = v.key WHERE i.expires_at IS NULL OR i.expires_at > $1 " +
			"ORDER BY v.distance, i.updated_at DESC, i.namespace, i.key"
	}
	p := &pgvector{exact: relational.Statement{Postgres: statement("")}, approximate: map[int]relational.Statement{}}
	if dims <= indexable || dims <= indexableHalved && atLeast(version, 0, 7) {
		for _, n := range relational.Neighbors {
			p.approximate[n] = relational.Statement{Postgres: statement(fmt.Sprintf(" ORDER BY %s LIMIT %d", distance(compared), n))}
		}
		p.index = fmt.Sprintf("store_vectors_hnsw_%08x", crc32.ChecksumIEEE([]byte(model+compared)))
		p.create = fmt.Sprintf("CREATE INDEX CONCURRENTLY %s ON store_vectors USING hnsw ((vector%s) %s) WHERE model = %s", p.index, compared, class, literal)
	}
	return p
}

// atLeast compares a version such as 0.8.1.
func atLeast(version string, major, minor int) bool {
	parts := append(strings.Split(version, "."), "0", "0")
	x, _ := strconv.Atoi(parts[0]) // 0 for something else
	y, _ := strconv.Atoi(parts[1])
	return x > major || x == major && y >= minor
}

const (
	// One server makes the index; a second one would fail, or wait for as long as that takes.
	tryIndex  = "SELECT pg_try_advisory_lock(1970170995, 1)"
	freeIndex = "SELECT pg_advisory_unlock(1970170995, 1)"
	// others are indexes for models that are not used any more, and those whose creation was interrupted.
	obsolete = "SELECT c.relname FROM pg_class c JOIN pg_index x ON x.indexrelid = c.oid WHERE x.indrelid = 'store_vectors'::regclass AND c.relname LIKE 'store\\_vectors\\_hnsw\\_%' AND (c.relname <> $1 OR NOT x.indisvalid)"
)

// IndexVectors implements store.Backend.
func (i items) IndexVectors(ctx context.Context) error {
	s, p := i.Store, i.vector.Load()
	if p == nil || p.create == "" {
		return nil
	}
	var there bool
	if err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) AND indisvalid)", p.index).Scan(&there); err != nil {
		return fmt.Errorf("index of vectors: %w", classify(ended(ctx, err)))
	}
	if there {
		return nil
	}
	err := s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return p.build(ctx, s, conn.Conn()) })
	if err != nil {
		return fmt.Errorf("index of vectors: %w", classify(ended(ctx, err)))
	}
	return nil
}

// build makes the index on a connection of its own.
func (p *pgvector) build(ctx context.Context, s *Store, conn *pgx.Conn) (err error) {
	var mine bool
	if err := conn.QueryRow(ctx, tryIndex).Scan(&mine); err != nil || !mine {
		return err
	}
	defer func() {
		_, e := conn.Exec(context.WithoutCancel(ctx), freeIndex)
		err = errors.Join(err, e)
	}()
	rows, err := conn.Query(ctx, obsolete, p.index)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+pgx.Identifier{name}.Sanitize()); err != nil {
			return err
		}
	}
	defer func() { // the connection returns to the pool
		_, e := conn.Exec(context.WithoutCancel(ctx), "RESET statement_timeout")
		err = errors.Join(err, e)
	}()
	// Without numbers of rows Postgres reads all vectors in place of the index, until it counts them by itself.
	for _, statement := range []string{"SET statement_timeout = 0", p.create, "ANALYZE store_vectors, store_items"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	s.log.InfoContext(ctx, "index of vectors created", "index", p.index)
	return nil
}

// Rank implements relational.DB: nothing is in memory.
func (database) Rank(context.Context, *store.Near, string) (*vectors.Ranking, error) { return nil, nil }

// Sorted implements relational.DB.
func (d database) Sorted(_ *store.Near, neighbors int) relational.Statement {
	p := d.s.vector.Load()
	switch {
	case p == nil:
		return relational.Statement{}
	case neighbors > 0:
		return p.approximate[neighbors]
	}
	return p.exact
}

// Vector implements relational.DB.
func (database) Vector(v []float32, r relational.Row, col int) bool {
	return vectors.DecodeArray(v, r.Append(nil, col))
}

const insertVector = "INSERT INTO store_vectors (namespace, key, number, model, vector) VALUES ($1, $2, $3, $4, $5)"

// PutVectors implements relational.Writer.
func (tx *Tx) PutVectors(namespace string, i *store.Item) error {
	for n, v := range i.Embedding.Vectors {
		if err := tx.exec(insertVector, namespace, i.Key, n, i.Embedding.Model, v); err != nil {
			return err
		}
	}
	return nil
}

// VectorsGone implements relational.Writer: nothing is in memory.
func (*Tx) VectorsGone(string, string) {}
