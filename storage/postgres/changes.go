package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"understudy/id"
	"understudy/thread/changes"
)

// changesChannel carries what servers have changed: the schema, which several deployments in one
// database do not share, the server, and then threads, or thread:run; no more of them: anything.
const changesChannel = "understudy_changes"

const (
	// notice bounds a notification, in bytes: Postgres takes less than 8,000, the schema included.
	notice        = 7_000
	notifyChanges = "SELECT pg_notify($1, current_schema() || ' ' || word) FROM unnest($2::text[]) word"
)

// SendChanges notifies the other servers of what was changed here; nil: anything. Notifications
// may be lost.
func (s *Store) SendChanges(ctx context.Context, list []changes.Change) error {
	words := []string{s.self}
	for _, c := range list {
		word := string(c.Thread)
		if c.Run != "" {
			word += ":" + string(c.Run)
		}
		if len(words[len(words)-1])+1+len(word) > notice {
			words = append(words, s.self)
		}
		words[len(words)-1] += " " + word
	}
	return s.read(ctx, func(q *reader) error { return q.query(notifyChanges, nil, changesChannel, words) })
}

// changesIn reads a notification of SendChanges; ok is false for one of this server or of another
// schema.
func (s *Store) changesIn(schema, payload string) (list []changes.Change, ok bool) {
	words := strings.Split(payload, " ")
	if len(words) < 2 || words[0] != schema || words[1] == s.self {
		return nil, false
	}
	for _, word := range words[2:] {
		t, r, _ := strings.Cut(word, ":")
		list = append(list, changes.Change{Thread: id.Thread(t), Run: id.Run(r)})
	}
	return list, true
}

// listenTo subscribes a connection, and returns its schema.
func listenTo(ctx context.Context, conn *pgx.Conn) (schema string, err error) {
	for _, name := range []string{channel, changesChannel} {
		if _, err := conn.Exec(ctx, "LISTEN "+name); err != nil {
			return "", err
		}
	}
	err = conn.QueryRow(ctx, "SELECT coalesce(current_schema(), '')").Scan(&schema)
	return schema, err
}
