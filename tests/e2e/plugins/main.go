// Reads an object of a network plugin from standard input, and fails with what the plugin's own code finds wrong in it: Parse of Cilium's
// policies, and the checks of Calico's client. Cilium has no check of its groups beside their definition.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"

	cilium "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	calico "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/validator/v3"
)

func main() {
	if err := judge(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(input io.Reader) error {
	text, err := io.ReadAll(input)
	if err != nil {
		return err
	}
	var object struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	switch object.Kind {
	case "CiliumClusterwideNetworkPolicy":
		policy := &cilium.CiliumClusterwideNetworkPolicy{}
		if err := strictly(text, policy); err != nil {
			return err
		}
		_, err := policy.Parse(slog.Default(), "cluster")
		return err
	case "CiliumCIDRGroup":
		group := &cilium.CiliumCIDRGroup{}
		return strictly(text, group)
	case "GlobalNetworkSet":
		set := calico.NewGlobalNetworkSet()
		if err := strictly(text, set); err != nil {
			return err
		}
		return v3.Validate(set)
	case "GlobalNetworkPolicy":
		policy := calico.NewGlobalNetworkPolicy()
		if err := strictly(text, policy); err != nil {
			return err
		}
		return v3.Validate(policy)
	default:
		return fmt.Errorf("the kind %q is unknown", object.Kind)
	}
}

// A field that the plugin does not know is a fault.
func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
