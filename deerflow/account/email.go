package account

import (
	"fmt"
	"net/mail"
	"slices"
	"strings"

	"understudy/internal/fault"
)

const (
	maxEmail  = 254
	maxBefore = 64 // characters before the @-sign
)

// reserved are the names below which no mail is delivered.
var reserved = []string{"arpa", "invalid", "local", "localhost", "onion", "test"}

// CheckEmail returns fault.Unprocessable, with the reason, for what is no e-mail address.
func CheckEmail(email string) error {
	_, err := checked(email)
	return err
}

// checked returns an e-mail address without what is around it, in lower case: addresses are compared so.
func checked(email string) (string, error) {
	wrong := func(format string, args ...any) (string, error) {
		return "", fault.Newf(fault.Unprocessable, format, args...)
	}
	email = strings.TrimSpace(email)
	if a, err := mail.ParseAddress(email); err == nil && strings.HasSuffix(email, ">") {
		email = a.Address
	}
	before, behind, found := strings.Cut(email, "@")
	behind = strings.ToLower(behind)
	labels := strings.Split(behind, ".")
	switch {
	case !found:
		return wrong("An email address must have an @-sign.")
	case before == "":
		return wrong("There must be something before the @-sign.")
	case behind == "":
		return wrong("There must be something after the @-sign.")
	case strings.HasPrefix(behind, "["):
		return wrong("A bracketed IP address after the @-sign is not allowed here.")
	case len(before) > maxBefore:
		return wrong("The email address is too long before the @-sign (%d characters too many).", len(before)-maxBefore)
	case len(behind) > maxEmail-1:
		return wrong("The email address is too long after the @-sign (%d characters too many).", len(behind)-maxEmail+1)
	case len(email) > maxEmail:
		return wrong("The email address is too long (%d characters too many).", len(email)-maxEmail)
	case strings.Contains(email, ".."):
		return wrong("An email address cannot have two periods in a row.")
	case strings.HasPrefix(before, "."), strings.HasSuffix(before, "."):
		return wrong("An email address cannot begin with a period, or have one right before the @-sign.")
	}
	if bad := oddities(before, " \t\"(),:;<>[\\]@"); bad != "" {
		return wrong("The email address contains invalid characters before the @-sign: %s.", bad)
	}
	if bad := oddities(behind, " \t\"(),:;<>[\\]@!#$%&*+/=?^`{|}~_'"); bad != "" {
		return wrong("The part after the @-sign contains invalid characters: %s.", bad)
	}
	switch {
	case slices.Contains(labels, ""):
		return wrong("An email address cannot have a period right after the @-sign, or at its end.")
	case len(labels) == 1:
		return wrong("The part after the @-sign is not valid. It should have a period.")
	case slices.Contains(reserved, labels[len(labels)-1]):
		return wrong("The part after the @-sign is a special-use or reserved name that cannot be used with email.")
	case slices.ContainsFunc(labels, func(l string) bool { return len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' }):
		return wrong("The part after the @-sign is not a valid name.")
	}
	if _, err := mail.ParseAddress(strings.ToLower(email)); err != nil {
		return wrong("The email address is not valid.")
	}
	return strings.ToLower(email), nil
}

// oddities lists the characters of a text that are not allowed there; "" for none.
func oddities(text, forbidden string) string {
	var bad []string
	for _, r := range text {
		name := fmt.Sprintf("'%c'", r)
		switch {
		case r == ' ':
			name = "SPACE"
		case r < ' ' || r == 0x7f:
			name = fmt.Sprintf("U+%04X", r)
		case !strings.ContainsRune(forbidden, r):
			continue
		}
		if !slices.Contains(bad, name) {
			bad = append(bad, name)
		}
	}
	slices.Sort(bad)
	return strings.Join(bad, ", ")
}
