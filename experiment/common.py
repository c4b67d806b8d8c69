import sys, os, time, math, copy
sys.path.insert(0, 'TRAINING/base/src'); sys.path.insert(0, '/work/training46/tools/networks')
sys.dont_write_bytecode = True
import numpy as np, torch, cv2
from pathlib import Path
from torch import nn
from torch.nn import functional as F
import train_flow_painter as ex
from faceanon.backbones.persona import MAPS, POSE, Persona, LIGHT
from faceanon.landmarks.redrawing import times, noise
from faceanon.networks.flow_painter import FlowPainter, flow_error, follow, _waves
from faceanon.weights.shipped import read_tensors
W = Path('TRAINING')
ROOTS = ['SHARED/photofaces/aligned256', 'SHARED/testbed/sfhq_synth256']
COND = 64 + LIGHT + POSE

def load_flow():
    net = FlowPainter(maps=MAPS, condition=COND)
    net.load_state_dict(read_tensors('redrawer.safetensors', None))
    return net.float().to(memory_format=torch.channels_last)

class Avoiding(nn.Module):
    """The shipped flow, with a further input: the code of whom not to draw (zeros: nobody)."""
    def __init__(self, flow):
        super().__init__()
        self.flow = flow
        hidden = flow.painter.embed[0].out_features
        self.shun = nn.Linear(64, hidden, bias=False)
        nn.init.zeros_(self.shun.weight)
    def forward(self, noisy, at, latents, mask, maps, condition, shun=None):
        p = self.flow.painter
        shown = torch.cat([maps, noisy * mask], 1)
        told = torch.cat([condition, _waves(at)], 1)
        around = latents * (1 - mask)
        first = p.embed[0](told)
        if shun is not None:
            first = first + self.shun(shun)
        film = p.embed[1:](first)
        x = p.enter['16'](torch.cat([around, shown], 1))
        kept = []
        for side in p.sides:
            level = p.levels[str(side)]
            x = level.descend(x, film); kept.append(x); x = level.down(x)
        for n, block in enumerate(p.coarse):
            x = block(x, film)
            if n < len(p.attention): x = p.attention[n](x)
        for side in reversed(p.sides):
            x = p.levels[str(side)].ascend(x, kept.pop(), film)
        return p.leave['16'](x) * mask

def cond_of(codes, identity=None):
    return torch.cat([codes.identity if identity is None else identity, codes.attributes[:, 0]], 1)

def euler(net, start, ts, latents, mask, maps, cond, shun=None, grad_from=None):
    """Euler; gradient from step grad_from on (None: nowhere)."""
    here = start
    for i, (a, b) in enumerate(zip(ts[:-1], ts[1:])):
        on = grad_from is not None and i >= grad_from
        with torch.set_grad_enabled(on):
            at = here.new_full((len(here),), a)
            with torch.autocast('cpu', torch.bfloat16):
                v = net(here, at, latents, mask, maps, cond) if shun is None else net(here, at, latents, mask, maps, cond, shun)
            here = here + (b - a) * v.float()
    return here
