package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// A password that is not encoded ends up in what looks like a host, a path or a parameter. So
// nothing of an address is repeated before it is known that it was taken apart as its writer meant
// it, and the words of the drivers are not either.
const (
	// A password that is not encoded looks like a part of the host, path or parameters. So no part
	// of an address, and no message of a driver about it, appears in an error before the address is
	// known to be parsed as intended.
	encode        = "percent-encode the password (@ as %40, / as %2F, # as %23, ? as %3F, : as %3A, % as %25)"
	postgresLooks = "an address looks like postgres://user:password@host:5432/name"
	redisLooks    = "an address looks like redis://user:password@host:6379/0, rediss://… with TLS, or unix:///path"
)

// mayHoldAt are parameters of an address whose values may contain an @.
var mayHoldAt = []string{"user", "password", "sslpassword", "application_name", "options", "passfile", "service", "username", "client_name"}

// strayAt reports whether the parameters of an address contain an @ in the wrong place: then they
// are part of a password.
func strayAt(query string) bool {
	for _, pair := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if strings.Contains(key, "@") || strings.Contains(value, "@") && !slices.Contains(mayHoldAt, key) {
			return true
		}
	}
	return false
}

// CheckPostgres returns what is wrong with the address of a database and what to write, without
// the password, or nil.
func CheckPostgres(address string) error {
	base, query := address, ""
	scheme, rest, isURL := strings.Cut(address, "://")
	plain, driver, hasDriver := strings.Cut(scheme, "+")
	switch {
	case strings.HasPrefix(address, `"`) || strings.HasPrefix(address, "'") && isURL:
		return errors.New("it begins with a quotation mark, which belongs to a shell or to .env; " + postgresLooks)
	case isURL && hasDriver && (plain == "postgres" || plain == "postgresql"):
		return fmt.Errorf("it must begin with postgres://, without +%s, which names a driver of SQLAlchemy; %s", driver, postgresLooks)
	case isURL && scheme != "postgres" && scheme != "postgresql" && !strings.ContainsAny(scheme, " ='"):
		return errors.New("it must begin with postgres://; " + postgresLooks)
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		// As the driver does it: the first @ before a slash ends user and password.
		if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
			rest = rest[i+1:]
		}
		var place string
		place, query, _ = strings.Cut(rest, "?")
		if strings.Contains(place, "@") || strayAt(query) {
			return fmt.Errorf("it has an @ in the wrong place: %s; %s", encode, postgresLooks)
		}
		if query != "" {
			base = strings.TrimSuffix(address, "?"+query)
		}
	}
	c, err := pgxpool.ParseConfig(address)
	if err != nil {
		return explainPostgres(err, base, query)
	}
	if strings.Contains(c.ConnConfig.Host, "@") || !isURL && strings.Contains(c.ConnConfig.Database, "@") {
		return fmt.Errorf("its host or database has an @: %s; in libpq's key=value form quote the password; %s", encode, postgresLooks)
	}
	// That one is set shows only here: without it the driver has a number of its own.
	if asked, err := pgconn.ParseConfig(address); err == nil && asked.RuntimeParams["pool_max_conns"] != "" && c.MaxConns < 2 {
		return fmt.Errorf("its pool_max_conns is %d; at least two are needed", c.MaxConns)
	}
	return nil
}

// explainPostgres returns why the driver refuses an address.
func explainPostgres(err error, base, query string) error {
	var file *fs.PathError
	if errors.As(err, &file) {
		return fmt.Errorf("it names a file that cannot be read: %w", file)
	}
	// When it can be read without its parameters, one of those is it, and holds no part of a password.
	if _, without := pgxpool.ParseConfig(base); query != "" && without == nil {
		for _, pair := range strings.Split(query, "&") {
			key, value, _ := strings.Cut(pair, "=")
			if _, err := pgxpool.ParseConfig(base + "?" + pair); err != nil && !strings.Contains(key, "password") {
				return fmt.Errorf("its parameter %s cannot be %q", key, value)
			}
		}
	}
	return fmt.Errorf("it cannot be parsed: %s, and other special characters; %s", encode, postgresLooks)
}

// CheckRedis returns what is wrong with the address of a Redis and what to write, without the
// password, or nil.
func CheckRedis(address string) error {
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL || scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return errors.New(redisLooks)
	}
	// As the driver does it: slash, question mark and # end user, password and host, whose last @
	// parts them.
	after := ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		after = rest[i:]
	}
	path, query, _ := strings.Cut(after, "?")
	if strings.ContainsAny(path, "@#") || strings.Contains(query, "#") || strayAt(query) {
		return fmt.Errorf("it has an @ or # in the wrong place: %s; %s", encode, redisLooks)
	}
	if _, err := redis.ParseURL(address); err == nil {
		return nil
	}
	if _, err := redis.ParseURL(scheme + "://" + strings.TrimSuffix(rest, after)); err == nil && scheme != "unix" {
		if _, err := redis.ParseURL(scheme + "://" + strings.TrimSuffix(rest, after) + path); err != nil {
			return fmt.Errorf("the path must be the number of a database, such as /0; %s", redisLooks)
		}
		return fmt.Errorf("its parameters (after the ?) cannot be parsed; %s", redisLooks)
	}
	return fmt.Errorf("it cannot be parsed: %s, and other special characters; %s", encode, redisLooks)
}

// DatabasePlace returns the place of the Postgres database without user and password, "name on
// host:port"; "" if there is none.
func (c *Config) DatabasePlace() string {
	if c.Storage.DatabaseURL == "" || CheckPostgres(c.Storage.DatabaseURL) != nil {
		return ""
	}
	p, err := pgconn.ParseConfig(c.Storage.DatabaseURL)
	if err != nil {
		return ""
	}
	name := p.Database
	if name == "" {
		name = p.User // the default of Postgres
	}
	return name + " on " + net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
}

// RedisPlace returns the place of Redis without user and password, "host:port"; "" if there is
// none.
func (c *Config) RedisPlace() string {
	if c.Streams.RedisURL == "" || CheckRedis(c.Streams.RedisURL) != nil {
		return ""
	}
	o, err := redis.ParseURL(c.Streams.RedisURL)
	if err != nil {
		return ""
	}
	return o.Addr
}

// checkAddresses looks at the addresses, and names where they stand.
func (c *Config) checkAddresses() (m Mistakes) {
	for _, a := range []struct {
		flag, text string
		check      func(string) error
	}{{"database-url", c.Storage.DatabaseURL, CheckPostgres}, {"redis-url", c.Streams.RedisURL, CheckRedis}} {
		if a.text == "" {
			continue
		}
		if err := a.check(a.text); err != nil {
			m = append(m, Mistake{Text: c.Where(a.flag) + ": " + err.Error()})
		}
	}
	return m
}

// Used returns what a server works with as attributes of the log, without passwords: its reader sees whether that is what was meant.
func (c *Config) Used(version string) []any {
	file := c.File
	if file == "" {
		file = "none"
	}
	attrs := []any{"config", file}
	if version != "" { // programs with the server inside may have none
		attrs = append([]any{"version", version}, attrs...)
	}
	if c.Storage.DatabaseURL == "" {
		return append(attrs, "data", c.Storage.Data)
	}
	attrs = append(attrs, "database", c.DatabasePlace())
	switch {
	case c.Mode == Proxy: // it has no use for Redis
	case c.Streams.RedisURL == "":
		attrs = append(attrs, "redis", "none")
	default:
		attrs = append(attrs, "redis", c.RedisPlace(), "redis_prefix", c.Streams.RedisPrefix)
	}
	return attrs
}
