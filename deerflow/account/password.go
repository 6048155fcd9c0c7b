package account

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"

	"understudy/internal/fault"
)

// Hashes are bcrypt with a prefix that says what was hashed: the password (first), or the Base64 of its SHA-256 (second), which is not cut at 72
// bytes. A hash without prefix is of the first kind.
const (
	prefixFirst, prefixSecond = "$dfv1$", "$dfv2$"

	// MinPassword is how many characters a password has at least.
	MinPassword = 8
	maxPassword = 1024 // bytes
	defaultCost = 12
)

// common are passwords that are guessed first, in lower case.
var common = words(`12345678 123456789 1234567890 password password1 password12 password123 passw0rd p@ssw0rd p@ssword qwerty12 qwerty123 qwertyuiop
	1q2w3e4r 1qaz2wsx abc12345 abcd1234 iloveyou letmein1 welcome1 welcome123 admin123 admin1234 administrator changeme changeme1 football baseball
	sunshine princess superman trustno1 dragon123 monkey123 master123 00000000 11111111 deerflow deerflow123`)

func words(s string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(s) {
		set[w] = true
	}
	return set
}

// CheckPassword returns fault.Unprocessable for a password that is too short, too long or too common.
func CheckPassword(password string) error {
	switch {
	case utf8.RuneCountInString(password) < MinPassword:
		return fault.Newf(fault.Unprocessable, "Password must have at least %d characters", MinPassword)
	case len(password) > maxPassword:
		return fault.Newf(fault.Unprocessable, "Password must have at most %d bytes", maxPassword)
	case common[strings.ToLower(password)]:
		return fault.New(fault.Unprocessable, "Password is too common; choose a stronger password.")
	}
	return nil
}

func digest(password string) []byte {
	sum := sha256.Sum256([]byte(password))
	return []byte(base64.StdEncoding.EncodeToString(sum[:]))
}

// hashed returns the hash of a password. Call it between enter and leave of the queue.
func hashed(ctx context.Context, password string, cost int) (string, error) {
	if cost == 0 {
		cost = defaultCost
	}
	var b []byte
	var err error
	if err := hashes.compute(ctx, func() { b, err = bcrypt.GenerateFromPassword(digest(password), cost) }); err != nil {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	return prefixSecond + string(b), nil
}

// noAccount is the hash that is compared when there is no account, so that the answer takes as long.
var noAccount = map[int]string{
	0:              "$2a$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
	bcrypt.MinCost: "$2a$04$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
}

// matches reports whether a password is the one of a hash. "" matches nothing, in the same time. Call it between enter and leave of the queue.
func matches(ctx context.Context, password, hash string, cost int) (ok bool, err error) {
	what := digest(password)
	var h string
	switch {
	case hash == "":
		h = noAccount[cost]
		if h == "" {
			h = noAccount[0]
		}
	case strings.HasPrefix(hash, prefixSecond):
		h = hash[len(prefixSecond):]
	default:
		h = strings.TrimPrefix(hash, prefixFirst)
		what = []byte(password)
		what = what[:min(len(what), 72)] // as bcrypt cut it
	}
	// Any error, of a broken hash too, refuses the sign-in.
	err = hashes.compute(ctx, func() { ok = bcrypt.CompareHashAndPassword([]byte(h), what) == nil && hash != "" })
	return ok, err
}

// current reports whether a hash has the newest form.
func current(hash string) bool { return strings.HasPrefix(hash, prefixSecond) }
