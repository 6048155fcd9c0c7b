package compat

import (
	"strconv"

	"understudy/id"
	"understudy/internal/fault"
)

// params returns all values of a query parameter.
type params func(name string) []string

// last returns the value that counts of a parameter: the last one.
func (p params) last(name string) (value string, given bool) {
	all := p(name)
	if len(all) == 0 {
		return "", false
	}
	return all[len(all)-1], true
}

// limit reads the parameter limit: absent if it is not given.
func (p params) limit(absent, most int) (int, error) {
	return p.number("limit", absent, most)
}

// number reads a parameter that is a number: absent if it is not given.
func (p params) number(name string, absent, most int) (int, error) {
	v, given := p.last(name)
	if !given {
		return absent, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return 0, fault.Newf(fault.Unprocessable, "Invalid %s: a number from 1 to %d", name, most)
	}
	return n, nil
}

// before reads the parameter before, a UUID: "" if it is not given.
func (p params) before() (string, error) {
	v, given := p.last("before")
	if !given {
		return "", nil
	}
	uuid := id.Canonical(v)
	if uuid == "" {
		return "", fault.New(fault.Unprocessable, "Invalid before: must be a UUID")
	}
	return uuid, nil
}
