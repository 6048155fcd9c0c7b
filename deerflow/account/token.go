package account

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Lifetime of a session.
const Lifetime = 7 * 24 * time.Hour

// Tokens makes and reads sessions: JWTs signed with HMAC-SHA-256.
type Tokens struct{ Key []byte }

type claims struct {
	jwt.RegisteredClaims
	Version int `json:"ver"`
}

// Make returns a token for a user.
func (t Tokens) Make(u *User, now time.Time) (string, error) {
	c := claims{jwt.RegisteredClaims{Subject: u.ID, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(Lifetime))}, u.Version}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(t.Key)
	if err != nil {
		return "", fmt.Errorf("sign a session: %w", err)
	}
	return token, nil
}

// Read returns the user id and the version of a token. Errors: ErrExpired, ErrToken.
func (t Tokens) Read(token string, now time.Time) (subject string, version int, err error) {
	var c claims
	_, err = jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return t.Key, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(), jwt.WithTimeFunc(func() time.Time { return now }))
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return "", 0, ErrExpired
	case err != nil || c.Subject == "":
		return "", 0, ErrToken
	}
	return c.Subject, c.Version, nil
}

// minKey is the least length of a key in bytes.
const minKey = 16

// Key returns the key of sessions: secret if that is set, else the one in a file of the home folder, which is made when it is missing.
func Key(secret, home string) ([]byte, error) {
	if secret != "" {
		if len(secret) < minKey {
			return nil, fmt.Errorf("AUTH_JWT_SECRET has %d bytes, at least %d are needed; make one with: openssl rand -hex 32", len(secret), minKey)
		}
		return []byte(secret), nil
	}
	path := filepath.Join(home, ".jwt_secret")
	for {
		text, err := os.ReadFile(path)
		switch key := strings.TrimSpace(string(text)); {
		case err == nil && len(key) >= minKey:
			return []byte(key), nil
		case err == nil:
			return nil, fmt.Errorf("read the key of sessions: %s is too short; remove it, and everybody signs in again", path)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("read the key of sessions: %w", err)
		}
		if err := makeKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make a key of sessions: %w", err)
		}
	}
}

// makeKey writes a new key, unless another process did meanwhile: fs.ErrExist.
func makeKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".jwt_secret-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	if _, err := f.WriteString(hex.EncodeToString(b) + "\n"); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
