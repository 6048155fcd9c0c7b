package account

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"understudy/internal/cache"
	"understudy/internal/fault"
)

// fresh is how long a user that was read says whether sessions have ended, and maxEnded how many users are kept. Open streams ask every few seconds, and a user may
// have any number of them: together they read its row once in that time.
const fresh, maxEnded = 5 * time.Second, 10_000

// askTime is how long one read may take.
const askTime = 2 * time.Second

// versions remembers for a moment which sessions users have. The zero value is ready.
type versions struct {
	flight singleflight.Group
	once   sync.Once
	users  *cache.Cache[string, version] // use known
}

func (v *versions) known() *cache.Cache[string, version] {
	v.once.Do(func() { v.users = cache.New[string, version](maxEnded) })
	return v.users
}

// version is that of the sessions of a user. It only grows.
type version struct {
	number int // -1: there is no such user
	read   time.Time
}

// Ended reports whether a session that was accepted has ended: it expired, its user is gone or has another password. It may notice that fresh later than Session.
// A session has not while that cannot be found out.
func (s *Service) Ended(ctx context.Context, token string) bool {
	subject, number, err := s.Tokens.Read(token, s.now())
	if err != nil {
		return true
	}
	v, ok := s.versions.known().Get(subject)
	if now := s.now(); !ok || v.number < number || now.Before(v.read) || now.Sub(v.read) >= fresh {
		shared, err, _ := s.versions.flight.Do(subject, func() (any, error) { // for all who wait, also when the first of them leaves
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
			defer cancel()
			return s.versionOf(ctx, subject)
		})
		if err != nil {
			return false
		}
		v, _ = shared.(version)
	}
	if v.number >= 0 && v.number < number { // read before the session was accepted
		if v, err = s.versionOf(ctx, subject); err != nil {
			return false
		}
	}
	return v.number != number
}

// versionOf reads the version of the sessions of a user.
func (s *Service) versionOf(ctx context.Context, subject string) (v version, err error) {
	v.read = s.now()
	u, err := s.Store.User(ctx, subject)
	switch {
	case fault.Is(err, fault.NotFound):
		v.number = -1
	case err != nil:
		return v, err
	default:
		v.number = u.Version
	}
	s.versions.known().Put(subject, v, 1)
	return v, nil
}
