package postgres

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/encryption"
	"understudy/internal/postgrestest"
)

// A role that may use nothing but a schema of its own: `public` is closed to it, as hardened
// databases have it.
func TestHardenedPublic(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	admin := connect(t, address)
	execAll(t, admin, "REVOKE ALL ON SCHEMA public FROM PUBLIC; CREATE ROLE hardened LOGIN; CREATE SCHEMA mine AUTHORIZATION hardened")
	t.Cleanup(func() { execAll(t, admin, "DROP OWNED BY hardened; DROP ROLE hardened") })
	role := strings.Replace(address, "postgres@", "hardened@", 1)

	for _, opts := range []Options{
		{URL: role, Schema: "mine"},
		{URL: role + "&search_path=mine"},
		{URL: role + "&options=-c%20search_path%3Dmine"},
	} {
		s, err := Open(t.Context(), opts)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	_, err := Inspect(t.Context(), Options{URL: role + "&search_path=mine"}, encryption.Configured{})
	require.NoError(t, err)

	var schema string
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT schemaname FROM pg_tables WHERE tablename = 'threads'").Scan(&schema))
	require.Equal(t, "mine", schema)

	execAll(t, admin, "CREATE TABLE public.assistant (); CREATE TABLE public.thread (); CREATE TABLE public.run ()")
	_, err = Open(t.Context(), Options{URL: role, Schema: "mine"})
	require.ErrorIs(t, err, errServer, "although the role may not look into public")
}

// A pooler that drops the setting of a connection must not make tables in another schema.
func TestDroppedSearchPath(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	for _, asks := range []string{"search_path=mine", "search_path=mine,public", "options=-c%20search_path%3Dmine"} {
		conn := connect(t, address+"&"+asks)
		execAll(t, conn, `SET search_path TO "$user", public`) // as if the setting had never arrived
		_, err := prepare(t.Context(), conn, migrations(), Options{Logger: slog.New(slog.DiscardHandler)})
		require.ErrorContains(t, err, "a pooler", asks)
		var tables int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables))
		require.Zero(t, tables, asks)
	}
}

func TestSearchPath(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		"":                    "",
		"-c geqo=off":         "",
		"-c search_path=mine": "mine",
		"-csearch_path=mine":  "mine",
		"--search_path=mine":  "mine",
		`-c geqo=off -c search_path=a,\ b -c x=y`: "a, b",
		"-c search_path=a -c search_path=b":       "b",
		"-c my.search_path=a":                     "",
	} {
		require.Equal(t, want, searchPath(map[string]string{"options": options}), options)
	}
	require.Equal(t, "first", searchPath(map[string]string{"search_path": "first", "options": "-c search_path=second"}))
	require.Equal(t, schemas(`"a", b`), schemas(`a,"b"`))
}

// A server that cannot have the connections that it may open says so before it runs out of them.
func TestRoom(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	admin := connect(t, address)
	execAll(t, admin, "CREATE ROLE few LOGIN CONNECTION LIMIT 4; GRANT ALL ON SCHEMA public TO few")
	t.Cleanup(func() { execAll(t, admin, "DROP OWNED BY few; DROP ROLE few") })
	role := strings.Replace(address, "postgres@", "few@", 1)
	said := func(connections int) string {
		var log bytes.Buffer
		s, err := Open(context.Background(), Options{URL: role, Connections: connections, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return log.String()
	}
	require.Contains(t, said(4), "this server opens up to 5 connections, and Postgres allows 4. Lower --database-connections")
	in, err := Inspect(t.Context(), Options{URL: role, Connections: 4}, encryption.Configured{})
	require.NoError(t, err)
	require.Equal(t, 4, in.Room.Allowed)
	require.Contains(t, in.Room.Short(in.Connections), "allows 4")
	require.Contains(t, Room{Allowed: 20, Used: 5}.Short(15), "of the 20 that Postgres allows 5 are in use")
	require.Empty(t, Room{Allowed: 20, Used: 5}.Short(14))
}
