package config

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an address has of a password is not repeated, however it is taken apart, and what to do is said.
func TestAddressesWithPasswordsThatAreNotEncoded(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"sec@ret", "sec/ret", "sec@re/t", "sec/r@et", "sec/re#t", "sec@r/e#t", "sec@r?e=t", "sec/r?e=t", "sec/12", "sec%ret", "sec:@ret", "1/secret", "1@secret", "@secret", "/secret"} {
		for _, place := range []string{"@127.0.0.1:6543/us", "@127.0.0.1:6543/us?sslmode=disable", "@db/us"} {
			err := CheckPostgres("postgres://us:" + password + place)
			require.ErrorContains(t, err, "percent-encode the password", password)
			require.NotContains(t, err.Error(), "sec", password)
			require.NotContains(t, err.Error(), "ret", password)
		}
	}
	for _, password := range []string{"sec/ret", "sec@re/t", "sec/r@et", "sec#ret", "sec/re#t", "sec@r/e#t", "sec?ret", "sec@r?e=t", "sec/r?e=t", "sec%ret", "1/secret", "1#secret", "1?secret"} {
		for _, user := range []string{"", "us"} {
			err := CheckRedis("redis://" + user + ":" + password + "@127.0.0.1:6379/0")
			require.ErrorContains(t, err, "percent-encode the password", password)
			require.NotContains(t, err.Error(), "sec", password)
			require.NotContains(t, err.Error(), "ret", password)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://us:p%40ss%2Fw%23rd@db:6543/us":                          "us on db:6543",
		"postgresql://us:p#w?x@db/name?sslmode=disable&pool_max_conns=2":    "name on db:5432",
		"postgres://us@one:1,two:2/name?target_session_attrs=read-write":    "name on one:1",
		"postgres://us@[::1]:5432/a%40b":                                    "a@b on [::1]:5432",
		"host=db user=us password='a@ b' dbname=x port=7":                   "x on db:7",
		"postgres://db/name?user=a@b&password=p@ss&application_name=me@her": "name on db:5432",
	} {
		require.NoError(t, CheckPostgres(address), address)
		require.Equal(t, want, (&Config{Storage: Storage{DatabaseURL: address}}).DatabasePlace())
	}
	for address, want := range map[string]string{
		"bar":                                                       "looks like postgres://",
		"mysql://us:secret@db/name":                                 "it must begin with postgres://",
		"postgresql+psycopg://us@db/name":                           "it must begin with postgres://, without +psycopg",
		`"postgres://us:secret@db/name"`:                            "quotation mark",
		`'postgres://us:secret@db/name'`:                            "quotation mark",
		"postgres://db:port/name":                                   "cannot be parsed",
		"postgres://db/name?sslmode=nothing":                        `its parameter sslmode cannot be "nothing"`,
		"postgres://db/name?sslmode=verify-ca&sslrootcert=/no/such": "/no/such",
		"postgres://db/name?pool_max_conns=1":                       "pool_max_conns is 1; at least two are needed",
		"postgres://db/name?pool_max_conns=0":                       `pool_max_conns cannot be "0"`,
		"host=db password=secret@other dbname=a@b":                  "percent-encode",
	} {
		err := CheckPostgres(address)
		require.ErrorContains(t, err, want, address)
		require.NotContains(t, err.Error(), "secret")
		require.Empty(t, (&Config{Storage: Storage{DatabaseURL: address}}).DatabasePlace())
	}
	for address, want := range map[string]string{
		"redis://cache": "cache:6379", "rediss://us:p%40ss@cache:1/3": "cache:1", "redis://:p@ss@cache": "cache:6379", "unix:///run/redis": "/run/redis",
		"unix://:secret@/run/redis?db=2": "/run/redis", "redis://[::1]": "[::1]:6379",
	} {
		require.NoError(t, CheckRedis(address), address)
		require.Equal(t, want, (&Config{Streams: Streams{RedisURL: address}}).RedisPlace())
	}
	for address, want := range map[string]string{
		"bar": "looks like redis://", "http://:secret@cache": "looks like redis://", "redis://cache:port": "cannot be parsed", "redis://:secret@cache/x": "number of a database",
		"redis://cache?db=x": "parameters", "unix://": "cannot be parsed",
	} {
		err := CheckRedis(address)
		require.ErrorContains(t, err, want, address)
		require.NotContains(t, err.Error(), "secret")
	}
}

// Both addresses are validated with all other settings, and each error names its place.
func TestAddressesAreMistakesWithTheirPlace(t *testing.T) {
	t.Parallel()
	src := setup(t, `{"graphs": {"a": "./agent.py:g"}, "env": {"REDIS_URI": "bar", "LOG_LEVEL": "loud"}}`, map[string]string{"DATABASE_URI": "postgres://us:sec@re/t@db/x", "UNDERSTUDY_PORT": "x"})
	_, _, err := Load(src)
	var mistakes Mistakes
	require.ErrorAs(t, err, &mistakes)
	text := err.Error()
	for _, want := range []string{"DATABASE_URI: it has an @", "REDIS_URI in env of langgraph.json: an address looks like", `LOG_LEVEL in env of langgraph.json: "loud"`, `UNDERSTUDY_PORT: "x"`} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "sec")
	require.NotContains(t, text, "bar")

	src.Flags = map[string]string{"database-url": "postgres://db:x/y", "redis-url": "redis://cache/x"}
	_, _, err = Load(src)
	require.ErrorContains(t, err, "--database-url: it cannot be parsed")
	require.ErrorContains(t, err, "--redis-url: the path must be")

	// A program that builds its own settings gets the errors too, without a place.
	c := Default(Serve)
	c.Streams.RedisURL = "bar"
	require.ErrorContains(t, c.Validate(), "redis-url: an address")
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{}`), 0o600))
	_, _, err = Load(Source{Mode: Proxy, File: file, Flags: map[string]string{"upstream": "http://us:secret@host:1"}, Lookup: func(string) (string, bool) { return "", false }})
	require.ErrorContains(t, err, "--upstream: remove the credentials")
	require.NotContains(t, err.Error(), "secret")
}

// An address in langgraph.json may hold a password or a key, so what is wrong with it is said without them.
func TestWrongAddressesAreNotRepeated(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"auth.jwt.issuer":          `"auth": {"jwt": {"issuer": %q}}`,
		"auth.jwt.jwks_url":        `"auth": {"jwt": {"issuer": "i", "jwks_url": %q}}`,
		"auth.oidc.issuer":         `"auth": {"oidc": {"client_id": "c", "issuer": %q}}`,
		"auth.oidc.url":            `"auth": {"oidc": {"client_id": "c", "issuer": "https://login.example", "url": %q}}`,
		"graphs.a.agent.mcp.t.url": `"graphs": {"a": {"agent": {"model": "scripted:x.json", "mcp": {"t": {"url": %q}}}}}`,
		"graphs.a.url":             `"graphs": {"a": {"url": %q}}`,
		"graphs.a.agent.model":     `"graphs": {"a": {"agent": {"model": {"name": "openai:gpt", "base_url": %q}}}}`,
	}
	for key, file := range files {
		refused := 0
		for _, address := range []string{
			"ftp://u:s3cret@example.com/s3cret?key=s3cret", "ws://example.com/?key=s3cret", "u:s3cret@example.com", "https://u:s3cret@example.com/%zz", "https://u:s3/cret@example.com",
			"https://u:s3cret@example.com/a", "https://example.com/a?key=s3cret", "https://example.com/#s3cret", "u:s3/cret@example.com",
		} {
			_, warnings, err := Load(setup(t, "{"+fmt.Sprintf(file, address)+"}", nil))
			if err != nil {
				refused++
			}
			require.NotRegexp(t, `s3/?cret`, fmt.Sprint(err, warnings), "%s: %s", key, address)
		}
		require.Positive(t, refused, key)
	}
}
