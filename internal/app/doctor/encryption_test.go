package doctor

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/internal/encryption"
	"understudy/internal/postgrestest"
)

func TestEncryption(t *testing.T) {
	t.Parallel()
	findings := func(keys int, jsonl string) (out []Verdict) {
		cfg := config.Default(config.Serve)
		for range keys {
			cfg.Storage.Keys = append(cfg.Storage.Keys, []byte("0123456789abcdef"))
		}
		cfg.History.JSONL = jsonl
		d := &doctor{}
		d.encryption(cfg)
		for _, f := range d.findings {
			out = append(out, f.Verdict)
		}
		return out
	}
	require.Empty(t, findings(0, "folder"))
	require.Equal(t, []Verdict{Fine}, findings(1, ""))
	require.Equal(t, []Verdict{Warning}, findings(2, ""))
	require.Equal(t, []Verdict{Fine, Warning}, findings(1, "folder"))
}

// reversing are handlers that turn data keys around.
type reversing struct{ encryption.Handlers }

func (reversing) Wrap(_ context.Context, _ encryption.Context, key []byte) ([]byte, error) {
	key = slices.Clone(key)
	slices.Reverse(key)
	return key, nil
}

func (r reversing) Unwrap(ctx context.Context, list []encryption.Wrapped) (out []encryption.Unwrapped, err error) {
	for _, w := range list {
		key, _ := r.Wrap(ctx, w.Context, w.Key)
		out = append(out, encryption.Unwrapped{Key: key})
	}
	return out, nil
}

func (reversing) Close() error { return nil }

// What a configuration encrypts with must fit the database, or no server starts. A start and doctor agree about each combination.
func TestEncryptionFitsTheDatabase(t *testing.T) {
	t.Parallel()
	one, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				name, was, is string // keys, "handlers", or both with a comma
				want          string // in the problem; "": none
			}{
				{"never", "", "", ""},
				{"begins", "", "one", ""},
				{"begins with handlers", "", "handlers", ""},
				{"the same key", "one", "one", ""},
				{"rotated", "one", "other,one", ""},
				{"no key", "one", "", "no encryption key; set LANGGRAPH_AES_KEY"},
				{"another key", "one", "other", "set it to the key from before"},
				{"the same handlers", "handlers", "handlers", ""},
				{"no handlers", "handlers", "", "name them in encryption.path"},
				{"a key in place of handlers", "handlers", "one", "name them in encryption.path"},
				{"handlers in place of a key", "one", "handlers", "run understudy encrypt with both"},
				{"from a key to handlers", "one", "one,handlers", ""},
			} {
				cfg := config.Default(config.Serve)
				cfg.Storage.Data = t.TempDir()
				if engine == "postgres" {
					cfg.Storage.DatabaseURL, cfg.Storage.Connections = postgrestest.Database(t), 4
				}
				with := func(list string) {
					cfg.Storage.Keys, cfg.Encryption = nil, config.Object{}
					for w := range strings.SplitSeq(list, ",") {
						switch w {
						case "one":
							cfg.Storage.Keys = append(cfg.Storage.Keys, one)
						case "other":
							cfg.Storage.Keys = append(cfg.Storage.Keys, other)
						case "handlers":
							cfg.Encryption = config.Object{Path: "encryption.py", Attr: "encryption"}
						}
					}
				}
				// open opens the database as a server does.
				open := func() error {
					o := backend.Options{Log: slog.New(slog.DiscardHandler)}
					if cfg.Encrypts() {
						o.Handlers = reversing{}
					}
					rows, err := backend.Open(t.Context(), cfg, o)
					if err == nil {
						err = rows.Close()
					}
					return err
				}
				with(c.was)
				require.NoError(t, open(), c.name)
				with(c.is)
				d := &doctor{}
				d.data(t.Context(), cfg)
				d.encryption(cfg)
				var problems []string
				begins := strings.HasPrefix(c.name, "begins")
				for _, f := range d.findings {
					if f.Check == "encryption" { // what a start begins is no fact yet, nor what does not start
						require.Equal(t, begins, strings.Contains(f.Text, "the next start begins to encrypt"), "%s: %s", c.name, f.Text)
						require.False(t, f.Verdict == Fine && (begins || c.want != ""), "%s: %s", c.name, f.Text)
					}
					if f.Verdict == Problem {
						require.Equal(t, "encryption", f.Check, f.Text)
						problems = append(problems, f.Text)
					}
				}
				err := open()
				if c.want == "" {
					require.Empty(t, problems, c.name)
					require.NoError(t, err, c.name)
					continue
				}
				require.Len(t, problems, 1, c.name)
				require.Contains(t, problems[0], c.want, c.name)
				require.Error(t, err, c.name)
			}
		})
	}
}
