package advice

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"understudy/internal/config"
	"understudy/internal/sockerr"
)

// Problem is a fault and the next step.
type Problem struct {
	Text string // what is so, in one line
	Fix  string // what to do about it, in one line
	Err  error  // the cause, for errors.Is; Text says what matters of it
}

func (p *Problem) Error() string { return p.Text + "; " + p.Fix }

func (p *Problem) Unwrap() error { return p.Err }

// From returns the Problem in err's chain; nil if there is none.
func From(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return nil
}

// Port explains why the address of cfg cannot be listened on; nil if err says nothing of that.
func Port(cfg *config.Config, err error) *Problem {
	port := cfg.Where("port")
	if cfg.Mode == config.Worker {
		port = cfg.Where("health-port")
	}
	var listen *net.OpError
	var unknown *net.DNSError
	switch {
	case !errors.As(err, &listen) || listen.Op != "listen":
	case errors.Is(err, sockerr.InUse):
		return &Problem{
			fmt.Sprintf("port %d on %s is taken, perhaps by another server of yours", cfg.Server.Port, cfg.Server.Host),
			fmt.Sprintf("stop the program that has it, or choose another with %s (0 takes a free one)", port), err,
		}
	case errors.Is(err, sockerr.Denied) && cfg.Server.Port > 0 && cfg.Server.Port < 1024:
		return &Problem{fmt.Sprintf("port %d needs privileges", cfg.Server.Port), fmt.Sprintf("choose one above 1023 with %s", port), err}
	case errors.As(err, &unknown):
		return &Problem{"no network interface here has the name " + unknown.Name, fmt.Sprintf("write an address of this machine, such as 127.0.0.1 or 0.0.0.0, in %s", cfg.Where("host")), err}
	case errors.Is(err, sockerr.NotAvailable):
		return &Problem{"no network interface here has the address " + cfg.Server.Host, fmt.Sprintf("write 127.0.0.1 or 0.0.0.0 in %s", cfg.Where("host")), err}
	}
	return nil
}

// line returns the text of an error as one line without repetitions: drivers report each attempt on a line of its own.
func line(text string) string {
	var parts []string
	for part := range strings.SplitSeq(text, "\n") {
		part = strings.TrimSpace(part)
		repeated := part == ""
		for _, p := range parts {
			repeated = repeated || p == part
		}
		if !repeated {
			parts = append(parts, part)
		}
	}
	return strings.TrimSuffix(strings.Join(parts, "; "), ":")
}
