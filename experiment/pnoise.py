import hashlib, numpy as np, torch
def pnoise(number):
    count = 32 * 16 * 16
    words = hashlib.shake_256(f"faceanon/redrawing/{number}".encode()).digest(16 * (count // 2))
    pairs = np.frombuffer(words, "<u8").reshape(-1, 2); unit = ((pairs >> 11) + 0.5) * 2.0**-53
    radius = np.sqrt(-2 * np.log(unit[:, 0])); angle = 2 * np.pi * unit[:, 1]
    return torch.from_numpy(np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(32, 16, 16).astype(np.float32))
