from data import *
from shape import *
import argparse
from faceanon.networks.face_painter import PaintingDiscriminator
ap = argparse.ArgumentParser()
ap.add_argument('name'); ap.add_argument('--minutes', type=float, default=40); ap.add_argument('--pics', type=int, default=6)
ap.add_argument('--fm', type=int, default=8); ap.add_argument('--rate', type=float, default=1e-4)
ap.add_argument('--hide', type=float, default=1.0); ap.add_argument('--div', type=float, default=.5); ap.add_argument('--match', type=float, default=.5)
ap.add_argument('--adv', type=float, default=.5); ap.add_argument('--anchor', type=float, default=.3); ap.add_argument('--away', type=float, default=1.0)
ap.add_argument('--wfm', type=float, default=1.0); ap.add_argument('--margin', type=float, default=0.0)
ap.add_argument('--steps', type=int, default=4); ap.add_argument('--probs', type=float, nargs='+', default=[.1, .2, .3, .4])
ap.add_argument('--variety', type=float, default=.85); ap.add_argument('--noshun', action='store_true'); ap.add_argument('--init', default=None)
ap.add_argument('--paint', default='learn2'); ap.add_argument('--dlr', type=float, default=1e-3); ap.add_argument('--pow', type=float, default=1.0)
ap.add_argument('--move', type=float, nargs=2, default=[.4, 1.0]); ap.add_argument('--advfrom', type=int, default=40)
ap.add_argument('--put', type=float, default=.5); ap.add_argument('--start', type=float, nargs=2, default=[.45, .65]); ap.add_argument('--putprobs', type=float, nargs='+', default=[.2, .3, .5]); ap.add_argument('--data', default='learnA')
ap.add_argument('--threads', type=int, default=1); ap.add_argument('--max', type=int, default=10**9)
o = ap.parse_args()
torch.set_num_threads(o.threads); torch.manual_seed(1)
m = Persona().train(); S = m.identities
data = Data(None, m, o.data); pdata = data; put = torch.load(W / f'{o.data}_put.pt', weights_only=False); able = put['ok'].all(1).nonzero()[:, 0]
teacher = load_flow().eval().requires_grad_(False)
for layer in teacher.modules():
    if isinstance(layer, (nn.Conv2d, nn.Linear)): layer.bfloat16()
net = Avoiding(load_flow()).eval()      # no dropout
if o.init: net.load_state_dict(torch.load(W / o.init, weights_only=False)['raw'])
ema = copy.deepcopy(net).requires_grad_(False)
D = PaintingDiscriminator(16, maps=8).to(memory_format=torch.channels_last)
if o.init and 'A_' not in o.init: D.load_state_dict(torch.load(W / o.init, weights_only=False)['disc'])
opt = torch.optim.AdamW([{'params': [p for n, p in net.named_parameters() if 'shun' not in n], 'lr': o.rate},
                         {'params': net.shun.parameters(), 'lr': 5 * o.rate}], betas=(.9, .99), weight_decay=0.)
base = [g['lr'] for g in opt.param_groups]
dopt = torch.optim.Adam(D.parameters(), o.dlr, (0.5, .99))
ts = times(0.0, o.steps)
scale = {}
gen = torch.Generator().manual_seed(7); buffer = []
def unit(name, g, R):
    """A gradient on latents, so long that an active row's is .03 / R in the mean over the last batches."""
    n = g.flatten(1).norm(dim=1); on = n > 0
    if on.any():
        now = float(n[on].mean()); scale[name] = now if name not in scale else .9 * scale[name] + .1 * now
    return g * (.03 / R / scale[name]) if name in scale else g

def augmented(p, flip, theta, blur, gain, shift):
    if flip: p = p.flip(-1)
    grid = F.affine_grid(theta, p.shape, align_corners=False)
    p = F.grid_sample(p, grid, padding_mode='reflection', align_corners=False)
    if blur:
        s = blur; r = 2; x = torch.arange(-r, r + 1).float(); k = torch.exp(-x * x / (2 * s * s)); k = k / k.sum()
        p = F.conv2d(F.conv2d(p, k.view(1, 1, 1, -1).expand(3, 1, 1, -1), padding=(0, r), groups=3), k.view(1, 1, -1, 1).expand(3, 1, -1, 1), padding=(r, 0), groups=3)
    return (p * gain[:, None, None, None] + shift[:, None, None, None]).clamp(-1.2, 1.2)
def draw_aug(R):
    a = (torch.rand(R) - .5) * .16; s = 1 + (torch.rand(R) - .5) * .12; tr = (torch.rand(R, 2) - .5) * .1
    theta = torch.stack([torch.stack([s * a.cos(), -s * a.sin(), tr[:, 0]], 1), torch.stack([s * a.sin(), s * a.cos(), tr[:, 1]], 1)], 1)
    return bool(torch.rand(()) < .5), theta, float(torch.rand(()) * 1.2) if torch.rand(()) < .5 else 0., .85 + .3 * torch.rand(R), .2 * (torch.rand(R) - .5)

log = open(W / f'{o.name}.csv', 'a'); print('batch,sec,cpu,k,hide_k3,hide_mean,div,match,d_real,d_fake,fm,anchor', file=log, flush=True)
begun = time.time(); cpu0 = time.process_time(); n = 0; saved = 0
def save(tag):
    torch.save({'raw': net.state_dict(), 'ema': ema.state_dict(), 'disc': D.state_dict(), 'batch': n, 'sec': time.time() - begun, 'opts': vars(o)}, W / f'{o.name}_{tag}.pt')
while (past := max((time.time() - begun) / (60 * o.minutes), n / o.max)) < 1 and n < o.max:
    lr = min(1, (n + 1) / 10) * min(1, max(.02, (1 - past) / .3))
    for g, b in zip(opt.param_groups, base): g['lr'] = b * lr
    opt.zero_grad(set_to_none=True)
    # strangers
    P = o.pics; pick = torch.randint(len(pdata), (P,)); rows = pick.repeat(2); R = 2 * P
    led = bool(torch.rand(()) < o.put); lips = None
    with torch.no_grad():
        image = pdata.image[rows].float() / 127.5 - 1
        if led:
            pick = able[torch.randint(len(able), (P,))]; rows = pick.repeat(2); two = torch.arange(2).repeat_interleave(P)
            image = pdata.image[rows].float() / 127.5 - 1
            ident = put['codes_identity'][rows]; mask = put['mask'][rows]; lat = pdata.latents[rows].float()
            lines = put['lines'][rows, two].float() / 255; maps = put['maps'][rows].float(); own_lines = F.pixel_shuffle(maps[:, 1:-3], 4)
            maps = torch.cat([maps[:, :1], F.pixel_unshuffle(lines, 4), maps[:, -3:]], 1)
            shown = torch.cat([mask, F.avg_pool2d(lines, 4)], 1); own_shown = torch.cat([mask, F.avg_pool2d(own_lines, 4)], 1)
            turned = put['identity'][rows, two]; att = put['attributes'][rows, 0]
            cond, own = torch.cat([turned, att], 1), torch.cat([ident, att], 1)
            first = float(torch.rand(()) * (o.start[1] - o.start[0]) + o.start[0]); tt = times(first, len(o.putprobs)); k = int(torch.multinomial(torch.tensor(o.putprobs), 1))
            noise0 = (1 - first) * torch.randn_like(lat) + first * put['latents'][rows, two].float()
            lips = put['own'][rows][:, None].float() / 255; put_on = put['put'][rows, two].float() / 127.5 - 1
            fit = k >= 1
        else:
            codes = pdata.codes(rows, train=False)
            ident = codes.identity; own_shown = shown = codes.features[1]
            key = torch.randn(R, S.free, S.free)
            turned = S.nearer_to_mean(S.turned(ident, key), o.variety)
            cond = cond_of(codes, turned); own = cond_of(codes)
            lat, mask, maps = codes.latents, codes.mask, codes.features[16]
            tt = ts; k = int(torch.multinomial(torch.tensor(o.probs), 1)); noise0 = torch.randn_like(lat); fit = k >= 2
        shun = None if o.noshun else ident
        here = euler(net, noise0, tt[:k + 1], lat, mask, maps, cond, shun)
        at = here.new_full((R,), tt[k])
        with torch.autocast('cpu', torch.bfloat16):
            tv = teacher(here, at, lat, mask, maps, cond).float()
            if o.away: tv = tv + o.away * (tv - teacher(here, at, lat, mask, maps, own).float())
    with torch.autocast('cpu', torch.bfloat16):
        v = net(here, at, lat, mask, maps, cond, shun)
    v = v.float()
    z = (here + (1 - tt[k]) * v.detach())
    z = (lat * (1 - mask) + z * mask).requires_grad_()
    pic = m._joined(z, mask, image)
    if lips is not None: pic = pic * (1 - lips) + put_on * lips
    e = m.bundle.recogniser(augmented(pic, *draw_aug(R))).float()
    e0 = torch.stack([pdata.emb[rows], pdata.emb[pdata.sibling(rows)]])
    cos = (e0 * e).sum(-1).amax(0)
    hide = (F.relu(cos - o.margin) + 2 * F.relu(cos - o.margin).square()).sum()
    pair = (e[:P] * e[P:]).sum(1); div = F.relu(pair - .2).sum()
    fb = S.free_basis
    mcos = F.cosine_similarity(S.code(e) @ fb, turned @ fb); match = (1 - mcos).sum()
    total = torch.zeros_like(z)
    ge = torch.zeros_like(e)
    for name, loss, w in (('hide', hide, o.hide), ('div', div, o.div), ('match', match, o.match)):
        if w and float(loss.detach()) > 0:
            ge = ge + w * unit('e_' + name, torch.autograd.grad(loss, e, retain_graph=True)[0], R)
    if float(ge.abs().sum()) > 0:
        g = torch.autograd.grad(e, z, ge)[0]
        # how much decoder and recogniser lengthen a gradient in the mean is taken out
        ratio = float(g.flatten(1).norm(dim=1).mean() / ge.norm(dim=1).mean().clamp_min(1e-9))
        scale['dec'] = ratio if 'dec' not in scale else .9 * scale['dec'] + .1 * ratio
        total = total + g / scale['dec']
    dr = df = float('nan')
    if o.adv:
        if fit:
            realin = torch.cat([pdata.latents[rows].float(), own_shown], 1)
            buffer.extend(zip(torch.cat([z.detach(), shown], 1), realin)); buffer[:] = buffer[-240:]
            if n >= o.advfrom:
                D.requires_grad_(False); D.train()
                with torch.autocast('cpu', torch.bfloat16): logit = D(torch.cat([torch.cat([z, shown], 1), realin])).float()
                g = torch.autograd.grad(F.softplus(logit[R:].detach() - logit[:R]).mean(1).sum(), z)[0]
                total = total + o.adv * unit('adv', g, R); D.requires_grad_(True)
        if buffer:
            D.train(); some = torch.randint(len(buffer), (20,)).tolist()
            fk, re_ = torch.stack([buffer[i][0] for i in some]), torch.stack([buffer[i][1] for i in some])
            if torch.rand(()) < .5: fk, re_ = fk.flip(-1), re_.flip(-1)
            with torch.autocast('cpu', torch.bfloat16): both = D(torch.cat([re_, fk])).float()
            lr_, lf = both[:20], both[20:]; dr = float((lr_ > lf).float().mean().detach()); df = float((lr_ - lf).mean().detach())
            dl = F.softplus(lf - lr_).mean() + .005 * (lr_.square().mean() + lf.square().mean())
            dopt.zero_grad(set_to_none=True); dl.backward(); dopt.step()
    anchor = (((v - tv) * mask).square().sum((1, 2, 3)) / mask.sum((1, 2, 3)) / 32).mean()
    torch.autograd.backward([v, o.anchor * anchor], [total * mask, None])
    # the flow itself, on photographs
    fm = torch.tensor(float('nan'))
    if o.fm:
        r = torch.randint(len(data), (o.fm,)); c = data.codes(r, train=True)
        x1 = data.latents[r].float(); at1 = torch.sigmoid(torch.randn(o.fm))
        nz = torch.randn_like(x1)
        sh = None if o.noshun else c.identity.roll(1, 0) * (torch.rand(o.fm, 1) < .7)
        def direction(x, t_):
            with torch.autocast('cpu', torch.bfloat16): return net(x, t_, c.latents, c.mask, c.features[16], cond_of(c), sh).float()
        fm = flow_error(direction, x1, c.mask, nz, at1).mean(); (o.wfm * fm).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step(); n += 1
    share = max(1 - .5 ** (1 / 50), 1 / (n + 1))
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.parameters()): a.lerp_(b, share)
    print(f'{n},{time.time()-begun:.0f},{time.process_time()-cpu0:.0f},{"pn"[not led]}{k},{float(cos.mean()) if led else float("nan"):.3f},{float(cos.mean()):.3f},{float(pair.mean()):.3f},{float(mcos.mean()):.3f},{dr:.2f},{df:.2f},{float(fm):.3f},{float(anchor):.3f}', file=log, flush=True)
    if n in (50, 100, 150, 200, 300, 400): save(f'{n}')
    elif n % 25 == 0: save('last')
save('last'); print('done', n, time.time() - begun)
