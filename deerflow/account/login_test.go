package account

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"understudy/internal/fault"
	"understudy/internal/logtest"
)

// memory is a Store of one account.
type memory struct {
	Store
	user User

	mu       sync.Mutex
	failures map[string][]time.Time
	asked    func()                // called by each method; nil: nothing
	update   func(next User) error // UpdateUser
}

func (m *memory) UserByEmail(_ context.Context, email string) (*User, error) {
	if !strings.EqualFold(strings.TrimSpace(email), m.user.Email) { // as the databases compare
		return nil, fault.New(fault.NotFound, "no such user")
	}
	u := m.user
	return &u, nil
}

func (m *memory) Failures(_ context.Context, key string, since time.Time) (n int, oldest time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ask()
	for _, at := range m.failures[key] {
		if at.Before(since) {
			continue
		}
		if n++; n == 1 || at.Before(oldest) {
			oldest = at
		}
	}
	return n, oldest, nil
}

func (m *memory) AddFailure(_ context.Context, key string, at, forget time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ask()
	for k := range m.failures {
		m.failures[k] = slices.DeleteFunc(m.failures[k], func(at time.Time) bool { return at.Before(forget) })
	}
	m.failures[key] = append(m.failures[key], at)
	return nil
}

func (m *memory) ForgetFailures(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ask()
	delete(m.failures, key)
	return nil
}

func (*memory) HasAdmin(context.Context) (bool, error) { return false, nil }

func (m *memory) ask() {
	if m.asked != nil {
		m.asked()
	}
}

func (m *memory) UpdateUser(_ context.Context, u *User, _ int) error { return m.update(*u) }

func oneAccount(t *testing.T) (*Service, *memory) {
	t.Helper()
	hash, err := hashed(t.Context(), "a right password", bcrypt.MinCost)
	require.NoError(t, err)
	m := &memory{user: User{ID: "ann", Email: "ann@example.com", Password: hash}, failures: map[string][]time.Time{}}
	return &Service{Store: m, Cost: bcrypt.MinCost}, m
}

// Guesses that are sent at once are no more than those that are sent one after the other: from one address, from addresses of one customer, and from any
// number of addresses at one account.
func TestGuessesAtOnce(t *testing.T) { //nolint:paralleltest // other tests would be in the queue of hashes
	for name, c := range map[string]struct {
		from, email func(i int) string
		most        int
	}{
		"one address":    {func(int) string { return "203.0.113.7" }, func(i int) string { return fmt.Sprintf("user%d@example.com", i) }, maxFailures},
		"one customer":   {func(i int) string { return fmt.Sprintf("2001:db8:1:2::%x", i) }, func(i int) string { return fmt.Sprintf("user%d@example.com", i) }, maxFailures},
		"many addresses": {func(i int) string { return fmt.Sprintf("2001:db8:1:%x::1", i) }, func(int) string { return "ann@example.com" }, maxForAccount},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			s, _ := oneAccount(t)
			var guessed, locked, refused atomic.Int64
			var all sync.WaitGroup
			for i := range 90 { // clients that fit into the queue
				all.Go(func() {
					_, err := s.Login(t.Context(), c.email(i), "a wrong password", c.from(i))
					switch {
					case errors.Is(err, ErrLocked):
						locked.Add(1)
					case errors.Is(err, ErrCredentials):
						guessed.Add(1)
					case fault.Is(err, fault.Unavailable):
						refused.Add(1)
					default:
						t.Errorf("%v", err)
					}
				})
			}
			all.Wait()
			require.LessOrEqual(t, int(guessed.Load()), c.most)
			require.Equal(t, 90, int(guessed.Load()+locked.Load()+refused.Load()))
			_, err := s.Login(t.Context(), c.email(1), "a right password", c.from(1))
			if guessed.Load() >= int64(c.most) {
				require.ErrorIs(t, err, ErrLocked)
			}
		})
	}
}

// fill lets clients, each with n requests, wait for hashes until the returned function is called.
func fill(t *testing.T, clients, n int, do func(ctx context.Context, from string) error) (empty func()) {
	t.Helper()
	for range cap(hashes.slots) {
		hashes.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range clients * n {
		all.Go(func() {
			if err := do(ctx, fmt.Sprintf("198.51.100.%d", i%clients)); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
	require.Eventually(t, func() bool { return hashes.turns.Len() == clients*n }, 10*time.Second, time.Millisecond)
	return func() {
		cancel()
		all.Wait()
		require.Zero(t, hashes.turns.Len())
		require.Empty(t, hashes.guesses)
		for range cap(hashes.slots) {
			<-hashes.slots
		}
	}
}

// However many passwords of clients wait, their number is bounded, for each client and together; what is given up makes room, and sign-ins work afterwards.
func TestQueueOfPasswords(t *testing.T) { //nolint:paralleltest // it fills the queue of hashes
	const right = "a right password"
	s, m := oneAccount(t)
	ways := map[string]func(ctx context.Context, from string) error{
		"sign-ins": func(ctx context.Context, from string) error {
			return errOf(s.Login(ctx, from+"@example.com", right, from))
		},
		"registrations": func(ctx context.Context, from string) error {
			return errOf(s.Register(ctx, New{"bob@example.com", right}, from))
		},
		"the first": func(ctx context.Context, from string) error {
			return errOf(s.Initialize(ctx, New{"bob@example.com", right}, from))
		},
		"changes": func(ctx context.Context, from string) error {
			return errOf(s.Change(ctx, &User{ID: from, Password: m.user.Password}, Change{Current: right, Password: right}))
		},
	}
	for name, do := range ways {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			empty := fill(t, 1, maxLine, do)
			err := do(t.Context(), "198.51.100.0")
			require.Equal(t, fault.Unavailable, fault.KindOf(err), "one more of the same client")
			require.NotContains(t, err.Error(), "hash", "the text is for people")
			other, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, do(other, "192.0.2.2"), context.Canceled, "it waits")
			empty()

			empty = fill(t, maxClients, 1, do)
			require.Equal(t, fault.Unavailable, fault.KindOf(do(t.Context(), "192.0.2.2")), "one more client")
			empty()
		})
	}
	u, err := s.Login(t.Context(), "ann@example.com", right, "192.0.2.2")
	require.NoError(t, err)
	require.Equal(t, "ann", u.ID)
}

// Another client waits for one hash of each that came before, however many these have sent.
func TestTurnsOfClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		q.slots <- struct{}{}
		var served []string
		send := func(client string) {
			go func() {
				leave, err := q.enter(t.Context(), client)
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				defer leave()
				if err := q.compute(t.Context(), func() { served = append(served, client) }); err != nil {
					t.Errorf("%v", err)
				}
			}()
			synctest.Wait()
		}
		for range maxLine {
			send("greedy")
		}
		send("other")
		<-q.slots
		synctest.Wait()
		require.Len(t, served, maxLine+1)
		require.Equal(t, []string{"greedy", "other"}, served[:2])
		require.Zero(t, q.turns.Len())
	})
}

// When a network has too many requests, the log says once what to do if it is a proxy.
func TestCrowdedNetwork(t *testing.T) { //nolint:paralleltest // it fills the queue of hashes
	log := &logtest.Buffer{}
	s := &Service{Store: &memory{user: User{Email: "ann@example.com"}}, Log: slog.New(slog.NewTextHandler(log, nil))}
	login := func(ctx context.Context, from string) error {
		_, err := s.Login(ctx, "ann@example.com", "x", from)
		return err
	}
	empty := fill(t, 1, maxLine, login)
	for range 2 {
		require.ErrorIs(t, login(t.Context(), "198.51.100.0"), errQueue)
	}
	_, err := s.Register(t.Context(), New{Email: "bob@example.com", Password: "a long password 1"}, "198.51.100.0")
	require.ErrorIs(t, err, errQueue)
	empty()
	require.Equal(t, 1, strings.Count(log.String(), "AUTH_TRUSTED_PROXIES"), log.String())
	require.Contains(t, log.String(), "198.51.100.0")
}

// Nothing is asked of the database while a hash is computed in a slot: while it hangs, others compute.
func TestDatabaseOutsideOfSlots(t *testing.T) { //nolint:paralleltest // it looks at the queue of hashes
	s, m := oneAccount(t)
	m.asked = func() {
		if len(hashes.slots) > 0 {
			t.Error("the database is asked in a slot")
		}
	}
	_, err := s.Login(t.Context(), "ann@example.com", "a right password", "192.0.2.1")
	require.NoError(t, err)
	_, err = s.Login(t.Context(), "ann@example.com", "a wrong password", "192.0.2.1")
	require.ErrorIs(t, err, ErrCredentials)
	require.NotZero(t, m.failures)
}

func errOf(_ *User, err error) error { return err }

// An attacker with many addresses cannot lock the owner out of an account: from networks where the owner signed in within a month, sign-in still works. There, too, five
// guesses lock the address.
func TestGuessesOfOthersDoNotLockOut(t *testing.T) { //nolint:paralleltest // other tests would be in the queue of hashes
	s, m := oneAccount(t)
	now := time.Unix(2e9, 0)
	s.Now = func() time.Time { return now }
	const right, wrong, home = "a right password", "a wrong password", "2001:db8:7:7::1"
	login := func(from, password string) error {
		_, err := s.Login(t.Context(), "Ann@example.com", password, from)
		return err
	}
	m.user.Email = "Ann@example.com"
	attack := func() {
		t.Helper()
		for i := range maxForAccount {
			require.ErrorIs(t, login(fmt.Sprintf("198.51.100.%d", i), wrong), ErrCredentials)
		}
		require.ErrorIs(t, login("198.51.100.77", right), ErrLocked)
	}
	require.NoError(t, login(home, right))
	attack()
	require.ErrorIs(t, login("2001:db8:7:8::1", right), ErrLocked, "another network")
	require.NoError(t, login("2001:db8:7:7:abc::2", right), "another address of the same customer")
	now = now.Add(2 * lockout)
	attack()
	for range maxFailures {
		require.ErrorIs(t, login(home, wrong), ErrCredentials)
	}
	require.ErrorIs(t, login(home, right), ErrLocked)
	now = now.Add(20 * 24 * time.Hour)
	require.NoError(t, login(home, right))
	now = now.Add(20 * 24 * time.Hour)
	attack()
	require.NoError(t, login(home, right), "each sign-in counts for a month")
	now = now.Add(31 * 24 * time.Hour)
	attack()
	require.ErrorIs(t, login(home, right), ErrLocked, "too long ago")
	require.LessOrEqual(t, len(m.failures), 2*maxForAccount+5, "what is over is forgotten")
}

// Sign-ins of the owner do not give the guesses back to others.
func TestGuessesAcrossSignIns(t *testing.T) { //nolint:paralleltest // other tests would be in the queue of hashes
	s, _ := oneAccount(t)
	for i := range maxForAccount {
		_, err := s.Login(t.Context(), "ann@example.com", "a wrong password", fmt.Sprintf("198.51.100.%d", i))
		require.ErrorIs(t, err, ErrCredentials)
		if i%7 == 0 {
			_, err = s.Login(t.Context(), "ann@example.com", "a right password", "192.0.2.1")
			require.NoError(t, err)
		}
	}
	_, err := s.Login(t.Context(), "ann@example.com", "a right password", "198.51.100.99")
	require.ErrorIs(t, err, ErrLocked)
	_, err = s.Login(t.Context(), "ann@example.com", "a right password", "192.0.2.1")
	require.NoError(t, err)
}

// Spaces and capital letters around an address are the same account: guesses with them count together, and the owner's own network stays known.
func TestGuessesInOtherSpellings(t *testing.T) { //nolint:paralleltest // other tests would be in the queue of hashes
	s, m := oneAccount(t)
	_, err := s.Login(t.Context(), "\tANN@example.com\u00a0", "a right password", "192.0.2.1")
	require.NoError(t, err)
	for i := range maxForAccount {
		email := strings.Repeat(" ", i) + "aNn@example.com" + strings.Repeat("\n", i%7)
		_, err := s.Login(t.Context(), email, "a wrong password", fmt.Sprintf("198.51.100.%d", i))
		require.ErrorIs(t, err, ErrCredentials)
	}
	for _, email := range []string{"ann@example.com", " ann@example.com", "Ann@example.com  "} {
		_, err := s.Login(t.Context(), email, "a right password", "198.51.100.99")
		require.ErrorIs(t, err, ErrLocked, "%q", email)
	}
	_, err = s.Login(t.Context(), " ann@example.com", "a right password", "192.0.2.1")
	require.NoError(t, err, "from the network of the owner")
	keys := len(m.failures)
	_, err = s.Login(t.Context(), strings.Repeat("a", maxEmail)+"@example.com", "a wrong password", "203.0.113.9")
	require.ErrorIs(t, err, ErrCredentials)
	require.Len(t, m.failures, keys, "an address that no account can have is not a key")
}

// A right password signs in, also when its hash, of an older form, cannot be replaced.
func TestSignInWithoutRenewing(t *testing.T) { //nolint:paralleltest // other tests would be in the queue of hashes
	for name, c := range map[string]struct {
		fails error
	}{
		"store fails":  {fails: fault.New(fault.Unavailable, "the database is away")},
		"changed":      {fails: fault.New(fault.Conflict, "changed meanwhile")},
		"it is stored": {},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			s, m := oneAccount(t)
			hash, err := bcrypt.GenerateFromPassword([]byte("a right password"), bcrypt.MinCost)
			require.NoError(t, err)
			m.user.Password = prefixFirst + string(hash)
			log := &logtest.Buffer{}
			s.Log = slog.New(slog.NewTextHandler(log, nil))
			m.update = func(next User) error {
				if c.fails == nil {
					m.user = next
				}
				return c.fails
			}
			u, err := s.Login(t.Context(), "ann@example.com", "a right password", "192.0.2.1")
			require.NoError(t, err)
			require.Equal(t, "ann", u.ID)
			failed := fault.Is(c.fails, fault.Unavailable)
			require.Equal(t, failed, strings.Contains(log.String(), "renewing a password hash of an older form failed"), log.String())
			require.Equal(t, c.fails == nil, current(m.user.Password))
		})
	}
}

// Sign-ins to an account of one's own between guesses at others do not make their number endless.
func TestGuessesBetweenSignIns(t *testing.T) { //nolint:paralleltest // other tests would be in the queue of hashes
	s, _ := oneAccount(t)
	guesses := 0
	for i := range 2 * maxFromNetwork {
		_, err := s.Login(t.Context(), fmt.Sprintf("user%d@example.com", i), "a wrong password", "203.0.113.7")
		if errors.Is(err, ErrLocked) {
			break
		}
		require.ErrorIs(t, err, ErrCredentials)
		if guesses++; guesses%(maxFailures-1) == 0 {
			if _, err := s.Login(t.Context(), "ann@example.com", "a right password", "203.0.113.7"); err != nil {
				require.ErrorIs(t, err, ErrLocked)
			}
		}
	}
	require.Equal(t, maxFromNetwork, guesses)
	_, err := s.Login(t.Context(), "ann@example.com", "a right password", "203.0.113.8")
	require.NoError(t, err, "from elsewhere")
}

// A stolen session gives as many guesses at the password of its user as a sign-in.
func TestGuessesAtTheCurrentPassword(t *testing.T) { //nolint:paralleltest // other tests would be in the queue of hashes
	s, m := oneAccount(t)
	m.update = func(User) error { return nil }
	change := func(current string) error {
		_, err := s.Change(t.Context(), &m.user, Change{Current: current, Password: "another right password"})
		return err
	}
	for range maxFailures {
		require.ErrorIs(t, change("a wrong password"), ErrPassword)
	}
	require.ErrorIs(t, change("a right password"), ErrLocked)
	s.Now = func() time.Time { return time.Now().Add(2 * lockout) }
	require.NoError(t, change("a right password"))
}

// A refusal says when the next attempt may be made: not before, and then it may.
func TestWaitAfterGuesses(t *testing.T) { //nolint:paralleltest // other tests would be in the queue of hashes
	for name, c := range map[string]struct {
		from func(i int) string
		most int
	}{
		"one address":    {func(int) string { return "203.0.113.7" }, maxFailures},
		"many addresses": {func(i int) string { return fmt.Sprintf("198.51.100.%d", i) }, maxForAccount},
	} {
		s, _ := oneAccount(t)
		now := time.Unix(1e9, 0)
		s.Now = func() time.Time { return now }
		for i := range c.most {
			_, err := s.Login(t.Context(), "ann@example.com", "a wrong password", c.from(i))
			require.ErrorIs(t, err, ErrCredentials, name)
			now = now.Add(time.Second)
		}
		right := func() error {
			_, err := s.Login(t.Context(), "ann@example.com", "a right password", c.from(200))
			return err
		}
		var locked *Locked
		require.ErrorAs(t, right(), &locked, name)
		require.Equal(t, lockout-time.Duration(c.most)*time.Second, locked.Wait, name)
		now = now.Add(locked.Wait - time.Millisecond)
		require.ErrorAs(t, right(), &locked, name)
		require.Equal(t, time.Second, locked.Wait, "at least")
		now = now.Add(time.Second)
		require.NoError(t, right(), name)
	}
	s, _ := oneAccount(t)
	u := &User{ID: "ann", Password: "$2a$"}
	for range maxFailures {
		require.Error(t, s.confirm(t.Context(), u, "wrong"))
	}
	var locked *Locked
	require.ErrorAs(t, s.confirm(t.Context(), u, "wrong"), &locked)
}
