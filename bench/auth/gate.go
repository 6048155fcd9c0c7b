package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// identities is how many users send requests, in random order; owners of them have a thread.
const identities, owners = 10_000, 500

// handlers is a file of auth.path as most are: a table of tokens, and what each user creates is theirs.
const handlers = `from langgraph_sdk import Auth

auth = Auth()
USERS = {f"Bearer token-{n}": f"user-{n}" for n in range(%d)}


@auth.authenticate
async def authenticate(authorization: str | None):
    if (user := USERS.get(authorization or "")) is None:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Unknown token")
    return {"identity": user}


@auth.on
async def own(ctx, value):
    value.setdefault("metadata", {})["owner"] = ctx.user.identity
    return {"owner": ctx.user.identity}
`

// measureGate compares this server without authentication, with native tokens and with handlers in Python, and LangGraph Server (langgraph dev, in memory) without and with the
// same handlers. Their turns alternate. It prints a table of requests per second of all clients, and of the median latency of one: those of the best turn, in which the
// machine did the least else.
func measureGate(ctx context.Context, folder, graphs string) (err error) {
	secret := strings.Repeat("s", 32)
	tokens := make([]string, identities)
	for n := range tokens {
		claims := jwt.MapClaims{"iss": "bench", "sub": fmt.Sprint("user-", n), "exp": time.Now().Add(time.Hour).Unix()}
		if tokens[n], err = jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret)); err != nil {
			return err
		}
	}
	bearer := func(token string) string { return "Authorization: Bearer " + token + "\r\n" }
	byHandlers := func(n int) string { return bearer(fmt.Sprint("token-", n)) }
	auth := filepath.Join(folder, "handlers.py")
	if err := os.WriteFile(auth, fmt.Appendf(nil, handlers, identities), 0o600); err != nil {
		return err
	}
	path := fmt.Sprintf(`{"path": %q, "disable_studio_auth": true}`, auth+":auth")
	peers := []*peer{
		{name: "this server, without"},
		{name: "this server, native tokens", credential: func(n int) string { return bearer(tokens[n]) }},
		{name: "this server, handlers in Python", credential: byHandlers},
		{name: "LangGraph Server, without"},
		{name: "LangGraph Server, the same handlers", credential: byHandlers},
	}
	for i, section := range []string{"", `{"jwt": {"issuer": "bench", "secret_env": "BENCH_SECRET"}}`, path, "", path} {
		p, own := peers[i], filepath.Join(folder, fmt.Sprint("server", i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		if section != "" {
			section = `, "auth": ` + section
		}
		file := filepath.Join(own, "langgraph.json")
		if err := os.WriteFile(file, fmt.Appendf(nil, `{"dependencies": [%q], "graphs": {"echo": %q}%s}`, filepath.Dir(graphs), graphs+":echo", section), 0o600); err != nil {
			return err
		}
		command, at := understudy(ctx, file, filepath.Join(own, "data")), ""
		if strings.HasPrefix(p.name, "LangGraph") {
			if at, err = freeAddress(); err != nil {
				return err
			}
			_, port, _ := net.SplitHostPort(at)
			command = exec.CommandContext(ctx, filepath.Join(filepath.Dir(*python), "langgraph"), "dev", "--config", file, "--port", port, "--no-browser", "--no-reload", "--n-jobs-per-worker", "10")
			command.Dir, command.Env = own, append(os.Environ(), "LANGSMITH_TRACING=false", "LOG_LEVEL=ERROR")
		}
		if command.Env == nil {
			command.Env = append(os.Environ(), "BENCH_SECRET="+secret)
		}
		if err := p.start(ctx, command, at); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
		if err := p.makeThreads(); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		title string
		send  func(p *peer, client, identity int) error
	}{
		{"GET /threads/{id}", func(p *peer, c, n int) error {
			return p.send(c, n%owners, "GET", "/threads/"+p.threads[n%owners], "", nil)
		}},
		{"POST /threads/search", func(p *peer, c, n int) error { return p.send(c, n, "POST", "/threads/search", `{"limit": 10}`, nil) }},
		{"POST /threads", func(p *peer, c, n int) error { return p.send(c, n, "POST", "/threads", `{}`, nil) }},
		{"POST /runs/wait", func(p *peer, c, n int) error { return p.send(c, n, "POST", "/runs/wait", echo, nil) }},
	} {
		rates, latencies := make([][]float64, len(peers)), make([][]float64, len(peers))
		for round := range *rounds/4 + 1 {
			for i, p := range peers {
				if err := p.connect(*clients); err != nil {
					return err
				}
				rate, _, err := perSecond(ctx, *turn, func(c int) error { return s.send(p, c, rand.IntN(identities)) })
				if err != nil {
					return err
				}
				var took []float64
				for began := time.Now(); time.Since(began) < *turn && ctx.Err() == nil; {
					one := time.Now()
					if err := s.send(p, 0, rand.IntN(identities)); err != nil {
						return err
					}
					took = append(took, time.Since(one).Seconds()*1000)
				}
				if round > 0 && ctx.Err() == nil { // the first one warms up
					rates[i], latencies[i] = append(rates[i], rate), append(latencies[i], median(took))
				}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Printf("\n| %s | requests/s, %d clients | p50 of one, ms | added, ms |\n|---|---|---|---|\n", s.title, *clients)
		for i, p := range peers {
			base := i - i%3
			if took := slices.Min(latencies[i]); i == base {
				fmt.Printf("| %s | %.0f | %.3f |  |\n", p.name, slices.Max(rates[i]), took)
			} else {
				fmt.Printf("| %s | %.0f | %.3f | %.3f |\n", p.name, slices.Max(rates[i]), took, took-slices.Min(latencies[base]))
			}
		}
	}
	return nil
}

// makeThreads makes a thread of each owner.
func (p *peer) makeThreads() error {
	if err := p.connect(*clients); err != nil {
		return err
	}
	p.threads = make([]string, owners)
	errs := make([]error, *clients)
	var all sync.WaitGroup
	for c := range *clients {
		all.Go(func() {
			for n := c; n < owners && errs[c] == nil; n += *clients {
				p.threads[n], errs[c] = p.newThread(c, n)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// freeAddress is one at which nothing listens now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
