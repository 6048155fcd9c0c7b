package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"understudy/access"
	"understudy/access/audit"
	"understudy/auth"
	"understudy/internal/app/moving"
	"understudy/internal/fault"
)

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Create, list, rotate and revoke API keys",
		Long: `Manages the API keys with which clients authenticate, in the data folder or the database of --database-url, also while a server runs.
The server accepts them with {"auth": {"api_keys": true}} in langgraph.json. Changes take effect within five seconds on every server.

A key acts as an identity: it reaches what that identity created, and nothing else. Its scopes are read, write (which includes read) and
admin (everything of everyone).`,
		Example: `  understudy keys create --name website
  understudy keys create --name ada-laptop --identity ada --expires 90d
  understudy keys list
  understudy keys rotate 4f5d3c2b1a098765 --overlap 1h`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysCreate(), newKeysList(), newKeysRotate(), newKeysRevoke())
	return cmd
}

// keysCommand is a command on the keys of a server's data. Flags are checked (nil: nothing is to check) before the data is opened, which may make it.
func keysCommand(cmd *cobra.Command, check func(now time.Time) error, run func(ctx context.Context, keys moving.Keys, args []string) error) *cobra.Command {
	cmd.Flags().SortFlags = false
	load := dataFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if check != nil {
			if err := check(time.Now()); err != nil {
				return err
			}
		}
		cfg, _, err := load()
		if err != nil {
			return err
		}
		log := newLog(cfg, cmd.ErrOrStderr())
		ctx, stop := untilSignal(cmd.Context(), log)
		defer stop()
		create := cmd.Name() == "create" // also before a server ever ran
		opening := waitSign(cmd.ErrOrStderr(), "opening "+place(cfg))
		made := create && moving.IsThere(ctx, cfg) != nil
		keys, err := moving.OpenKeys(ctx, cfg, create, log)
		opening()
		if err != nil {
			return err
		}
		if made {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: there was no database in %s, so a new one was made: the key is for a server that uses it; "+
				"for another, name its data with --data or --database-url\n", place(cfg))
		}
		return errors.Join(run(access.Enter(ctx, operator(), audit.CommandLine), keys, args), keys.Close())
	}
	return cmd
}

// operator is who runs a command, for the audit log: the user of the operating system.
func operator() *access.Actor {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	return &access.Actor{Identity: name}
}

// scopes are the names of scopes at the command line, and scopeNames those in order.
var (
	scopes     = map[string]string{"read": auth.Read, "write": auth.Write, "admin": auth.Admin}
	scopeNames = []string{"read", "write", "admin"}
)

// maxName is the longest name or identity of a key, in bytes.
const maxName = 200

func newKeysCreate() *cobra.Command {
	var name, identity, scope, expires string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a key and print it, once",
		Long: `Creates a key and prints it on standard output: only its digest is kept, so it cannot be shown again.
Clients send it as x-api-key, which is what api_key of LangGraph's SDKs does, or as Authorization: Bearer.`,
		Example: `  understudy keys create --name website
  understudy keys create --name dashboard --scope read
  UNDERSTUDY_API_KEY=$(understudy keys create --name me --scope admin) understudy threads`,
		Args: noArgs,
	}
	var end time.Time
	keysCommand(cmd, func(now time.Time) (err error) {
		switch {
		case strings.TrimSpace(name) == "":
			return misused(cmd, "needs --name, such as the client that gets the key")
		case scopes[scope] == "":
			return misused(cmd, "does not know --scope %q; the scopes are read, write and admin", scope)
		case len(name) > maxName || len(identity) > maxName:
			return misused(cmd, "--name and --identity have at most %d bytes", maxName)
		}
		if end, err = endOf(expires, now); err != nil {
			return misused(cmd, "--expires %q is no time from now; write one such as 12h or 90d", expires)
		}
		return nil
	}, func(ctx context.Context, keys moving.Keys, _ []string) error {
		if identity == "" {
			identity = name
		}
		k, text := auth.New(name, identity, []string{scopes[scope]}, time.Now(), end)
		if err := keys.InsertKey(ctx, k); err != nil {
			return err
		}
		if err := printKey(ctx, cmd.OutOrStdout(), keys, k, text); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "key %s acts as %q with scope %s%s; it is not shown again\n", k.ID, identity, scope, until(end))
		return nil
	})
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of what the key is for (required)")
	cmd.Flags().StringVar(&identity, "identity", "", "`IDENTITY` as which it acts (default its name)")
	cmd.Flags().StringVar(&scope, "scope", "write", "`SCOPE`: read, write or admin")
	complete(cmd, "scope", scopeNames)
	cmd.Flags().StringVar(&expires, "expires", "", "`DURATION` after which it ends, such as 12h or 90d (default never)")
	return cmd
}

// printKey prints the text of a new key, which cannot be shown again. A key that could not be printed ends.
func printKey(ctx context.Context, out io.Writer, keys moving.Keys, k *auth.Key, text string) error {
	_, err := fmt.Fprintln(out, text)
	if err == nil {
		return nil
	}
	if failed := keys.ExpireKey(ctx, k.ID, time.Now()); failed != nil {
		return fmt.Errorf("the new key could not be printed: %w; and it is valid: %w; run: understudy keys revoke %s", err, failed, k.ID)
	}
	return fmt.Errorf("the new key could not be printed, and has ended: %w; let the output go where there is space, and run the command again", err)
}

// endOf reads a time from now; "" is the zero time.
func endOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	unit := time.Duration(1)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		text, unit = days+"h", 24
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > 100*365*24*time.Hour/unit {
		return time.Time{}, errors.New("no duration")
	}
	return now.Add(d * unit), nil
}

func until(end time.Time) string {
	if end.IsZero() {
		return ""
	}
	return " until " + end.UTC().Format(time.RFC3339)
}

func newKeysList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all keys, without their secrets",
		Args:  noArgs,
	}
	keysCommand(cmd, nil, func(ctx context.Context, keys moving.Keys, _ []string) error {
		list, err := keys.Keys(ctx)
		if err != nil {
			return err
		}
		out, plain, now := cmd.OutOrStdout(), palette(false), time.Now()
		if asJSON {
			return json.NewEncoder(out).Encode(describeKeys(list, now))
		}
		if len(list) == 0 {
			fmt.Fprintln(out, "no keys; create one: understudy keys create --name NAME")
			return nil
		}
		rows := [][]string{{"KEY", "NAME", "IDENTITY", "SCOPE", "STATUS", "CREATED", "USED", "EXPIRES"}}
		for _, k := range describeKeys(list, now) {
			rows = append(rows, []string{
				k.ID, plain.printable(k.Name), plain.printable(k.Identity), strings.Join(k.Scopes, ","), k.Status, ago(k.CreatedAt, now), ago(orNone(k.UsedAt), now), cmp.Or(k.ExpiresAt, "never"),
			})
		}
		table(out, rows)
		return nil
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// shownKey is a key in a list.
type shownKey struct {
	ID        string   `json:"key_id"`
	Name      string   `json:"name"`
	Identity  string   `json:"identity"`
	Scopes    []string `json:"scopes"`
	Status    string   `json:"status"` // valid, expired or revoked
	CreatedAt string   `json:"created_at"`
	ExpiresAt string   `json:"expires_at,omitempty"`
	RevokedAt string   `json:"revoked_at,omitempty"`
	UsedAt    string   `json:"used_at,omitempty"`
}

func describeKeys(list []*auth.Key, now time.Time) []shownKey {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	out := make([]shownKey, len(list))
	for i, k := range list {
		status := "valid"
		switch {
		case !k.RevokedAt.IsZero():
			status = "revoked"
		case !k.Valid(now):
			status = "expired"
		}
		names := []string{}
		for name, scope := range scopes {
			if slices.Contains(k.Scopes, scope) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		out[i] = shownKey{k.ID, k.Name, k.Identity, names, status, at(k.CreatedAt), at(k.ExpiresAt), at(k.RevokedAt), at(k.UsedAt)}
	}
	return out
}

func oneKey(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return misused(cmd, "takes the ID of one key, as in understudy keys list, but got %q", args)
	}
	return nil
}

// unknownKey says where to find the IDs of keys.
func unknownKey(err error, key string) error {
	if fault.Is(err, fault.NotFound) {
		return usageError{fmt.Errorf("there is no key %q; its ID is in the first column of: understudy keys list", key)}
	}
	return err
}

func newKeysRotate() *cobra.Command {
	var overlap time.Duration
	var expires string
	cmd := &cobra.Command{
		Use:   "rotate KEY",
		Short: "Create a successor of a key, and let the key end",
		Long: `Creates a key with the name, identity and scopes of another one, and prints it. The old one ends after --overlap: until then clients can
change over.`,
		Example: `  understudy keys rotate 4f5d3c2b1a098765 --overlap 24h`,
		Args:    oneKey,
	}
	var end time.Time
	keysCommand(cmd, func(now time.Time) (err error) {
		if end, err = endOf(expires, now); err != nil || overlap < 0 {
			return misused(cmd, "--expires and --overlap are times from now, such as 12h")
		}
		return nil
	}, func(ctx context.Context, keys moving.Keys, args []string) error {
		now := time.Now()
		name := auth.IDOf(args[0])
		found, err := keys.KeysOf(ctx, []string{name})
		if err == nil && len(found) == 0 {
			err = fault.New(fault.NotFound, "API key not found")
		}
		if err != nil {
			return unknownKey(err, name)
		}
		old := found[0]
		if !old.Valid(now) {
			return fmt.Errorf("key %s has expired or was revoked; create another: understudy keys create --name %q", old.ID, old.Name)
		}
		k, text := auth.New(old.Name, old.Identity, old.Scopes, now, end)
		if err := keys.InsertKey(ctx, k); err != nil {
			return err
		}
		if err := printKey(ctx, cmd.OutOrStdout(), keys, k, text); err != nil { // before the old one ends
			return err
		}
		if err := keys.ExpireKey(ctx, old.ID, now.Add(overlap)); err != nil {
			return fmt.Errorf("the new key %s is valid, but the old one does not end: %w; run: understudy keys revoke %s", k.ID, err, old.ID)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "key %s follows %s, which ends at %s\n", k.ID, old.ID, now.Add(overlap).UTC().Format(time.RFC3339))
		return nil
	})
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "`DURATION` for which the old key stays valid")
	cmd.Flags().StringVar(&expires, "expires", "", "`DURATION` after which the new one ends, such as 12h or 90d (default never)")
	return cmd
}

func newKeysRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke KEY",
		Short:   "End a key now",
		Long:    `Ends a key, within five seconds on every server. What was created with it stays.`,
		Example: `  understudy keys revoke 4f5d3c2b1a098765`,
		Args:    oneKey,
	}
	return keysCommand(cmd, nil, func(ctx context.Context, keys moving.Keys, args []string) error {
		name := auth.IDOf(args[0])
		if err := keys.RevokeKey(ctx, name, time.Now()); err != nil {
			return unknownKey(err, name)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "key %s is revoked\n", name)
		return nil
	})
}
